"""`headwater check` and `headwater schema`."""

from __future__ import annotations

import json

from tests.support.command_line import ORDERS, Headwater, Shop


def test_a_right_file_exits_0_and_is_listed(headwater: Headwater, shop: Shop) -> None:
    done = headwater("check", shop.file.name)
    assert (done.code, done.out) == (0, "orders.yaml:1  orders  ok\n")
    assert headwater("check", ".", "--json").json == {
        "ok": True,
        "pipelines": [{"pipeline": "orders", "file": "orders.yaml", "line": 1}],
    }


def test_a_wrong_file_exits_2_with_its_place_and_the_remedy(headwater: Headwater, shop: Shop) -> None:
    shop.file.write_text(ORDERS.replace("cursor", "cursr"))
    done = headwater("check", "orders.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err == "orders.yaml:4:50  source.sql.cursr  unknown setting; did you mean 'cursor'?\n"
    (problem,) = headwater("check", "orders.yaml", "--json").json["error"]["problems"]
    assert (problem["line"], problem["column"], problem["path"]) == (4, 50, "source.sql.cursr")


def test_mistakes_in_headwater_yaml_and_in_flags_are_reported_with_the_rest(headwater: Headwater, shop: Shop) -> None:
    shop.file.write_text(ORDERS.replace("console", "consol"))
    (shop.folder / "headwater.yaml").write_text("lak: {}\n")
    done = headwater("check", "orders.yaml", "--set", "spark.memry=1g")
    assert done.code == 2
    assert [line.split("  ")[1] for line in done.err.splitlines()] == ["spark.memry", "lak", "sinks[1].consol"]
    assert headwater("check", "orders.yaml", "--set", "spark").code == 2


def test_connect_asks_the_sources_and_exits_3_when_one_is_silent(headwater: Headwater, shop: Shop) -> None:
    done = headwater("check", "orders.yaml", "--connect", "--json")
    assert (done.code, done.json["pipelines"][0]["answers"]) == (0, True)
    (shop.folder / "shop.db").unlink()
    done = headwater("check", "orders.yaml", "--connect", "--json")
    assert (done.code, done.json["ok"]) == (3, False)
    assert done.json["pipelines"][0]["error"]["code"] == "source-unreachable"


def test_the_schema_is_json_in_both_forms(headwater: Headwater) -> None:
    assert json.loads(headwater("schema").out) == headwater("schema", "pipeline", "--json").json
    assert headwater("schema", "project", "--json").json["title"].endswith("(headwater.yaml)")
    assert headwater("schema", "nothing").code == 2
