"""What the commands say of a stream that failed by itself while the others went on."""

from __future__ import annotations

import sqlite3

import pytest

from tests.support.command_line import ORDERS, Headwater, Shop


@pytest.fixture
def two_tables(headwater: Headwater, shop: Shop) -> Shop:
    """Orders and returns; the returns got another kind of cursor since they were read."""
    _execute(shop, "CREATE TABLE returns (id INTEGER PRIMARY KEY, item TEXT)", "INSERT INTO returns VALUES (1, 'x')")
    shop.file.write_text(ORDERS.replace("table: orders", "tables: [orders, returns]"))
    assert headwater("run", shop.file, "--once").code == 0
    _execute(shop, "DROP TABLE returns", "CREATE TABLE returns (id TEXT PRIMARY KEY, item TEXT)")
    _execute(shop, "INSERT INTO returns VALUES ('2', 'y')")
    return shop


def _execute(shop: Shop, *statements: str) -> None:
    with sqlite3.connect(shop.folder / "shop.db") as database:
        for statement in statements:
            database.execute(statement)


def test_the_others_land_and_the_exit_code_is_the_errors(headwater: Headwater, two_tables: Shop) -> None:
    two_tables.sell("fig")
    done = headwater("run", two_tables.file, "--once")
    assert done.code == 1
    assert "1 row landed" in done.out
    assert "; failed: returns" in done.out
    assert "the mark is on id (integer), the cursor is now id (string)" in done.out
    two_tables.sell("plum")
    cycle = headwater("run", two_tables.file, "--once", "--json").json
    assert (cycle["outcome"], cycle["failed_streams"], cycle["error"]["code"]) == (
        "failed",
        ["returns"],
        "source-changed",
    )
    assert cycle["rows"]["landed"] == 1
    alone = headwater("run", two_tables.file, "--once")
    assert (alone.code, "nothing new; failed: returns" in alone.out) == (1, True)


def test_status_marks_plan_and_history_show_who_waits(headwater: Headwater, two_tables: Shop) -> None:
    two_tables.sell("fig")
    planned = headwater("plan", two_tables.file)
    assert "pauses returns: returns: the mark is on id (integer)" in planned.out
    headwater("run", two_tables.file, "--once")
    headwater("run", two_tables.file, "--once")
    (line,) = headwater("status", "--json").json["pipelines"]
    assert [(one["stream"], one["code"], one["window"]) for one in line["waiting"]] == [
        ("returns", "source-changed", None)
    ]
    assert "returns paused since" in headwater("status").out
    assert "returns paused since" in headwater("marks", "orders").out
    kinds = [entry["kind"] for entry in headwater("history", "orders", "--json").json["history"]]
    assert kinds == ["landed", "failed", "landed"], "a failure that lasts is recorded once"


def test_it_waits_no_longer_when_it_is_mended(headwater: Headwater, two_tables: Shop) -> None:
    assert headwater("run", two_tables.file, "--once").code == 1
    _execute(two_tables, "DROP TABLE returns", "CREATE TABLE returns (id INTEGER PRIMARY KEY, item TEXT)")
    _execute(two_tables, "INSERT INTO returns VALUES (7, 'z')")
    done = headwater("run", two_tables.file, "--once", "--json").json
    assert (done["outcome"], done["rows"]["landed"]) == ("landed", 1)
    (line,) = headwater("status", "--json").json["pipelines"]
    assert line["waiting"] == []


def test_a_rewind_says_that_nobody_waits_any_more(headwater: Headwater, two_tables: Shop) -> None:
    headwater("run", two_tables.file, "--once")
    done = headwater("rewind", "orders", "--to", "start", "--why", "a new cursor", "--yes")
    assert "returns is no longer paused" in done.out + done.err
    assert headwater("run", two_tables.file, "--once").code == 0
