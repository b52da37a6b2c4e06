"""A folder whose objects change, in a table with `mode: replace_object`: from the listing to the snapshot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.api import run_once
from headwater.model.errors import TransformFailed

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Watched:
    """A folder of JSON objects, and a pipeline that lands them."""

    spark: object
    folder: Path
    table: str

    def write(self, name: str, *items: str) -> None:
        target = self.folder / "in" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps({"item": item}) + "\n" for item in items))

    def cycle(self) -> int:
        """Land what is new; how many rows went."""
        landings = run_once(self.folder / "orders.yaml", spark=self.spark).landings
        return sum(landing.proof.get("removed", 0) for landing in landings)

    def held(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.spark.table(self.table).orderBy("item").collect():
            found.setdefault(row.object_url.rpartition("/in/")[2], []).append(row.item)
        return found


@pytest.fixture
def watched(spark, namespace, tmp_path):
    def build(**more: str) -> Watched:
        settings = {
            "pipeline": "orders",
            "source": {"objects": {"url": "in/", "deleted": "remove_rows", "schema": "item string"}},
            "sinks": [{"iceberg": {"table": f"{namespace}.orders", "mode": "replace_object"}}],
        }
        (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        (tmp_path / "orders.yaml").write_text(json.dumps({**settings, **more}))
        return Watched(spark, tmp_path, f"{namespace}.orders")

    return build


def test_objects_that_change_empty_or_vanish_take_their_rows_with_them(watched):
    orders = watched()
    orders.write("mon day.jsonl", "lamp", "chair")
    orders.write("tue.jsonl", "table")
    orders.write("wed.jsonl", "sofa")
    assert orders.cycle() == 0
    orders.write("mon day.jsonl", "lamp, green")
    orders.write("tue.jsonl")
    (orders.folder / "in" / "wed.jsonl").unlink()
    orders.write("thu.jsonl", "desk")
    assert orders.cycle() == 4
    assert orders.held() == {"mon day.jsonl": ["lamp, green"], "thu.jsonl": ["desk"]}
    assert orders.cycle() == 0


def test_an_object_that_breaks_keeps_its_rows_until_it_is_mended(watched):
    orders = watched()
    orders.write("mon.jsonl", "lamp", "chair")
    orders.write("tue.jsonl", "table")
    orders.cycle()
    (orders.folder / "in" / "mon.jsonl").write_bytes(b"\xff\x00 no text at all")
    orders.write("tue.jsonl", "table, round")
    assert orders.cycle() == 1
    assert orders.held() == {"mon.jsonl": ["chair", "lamp"], "tue.jsonl": ["table, round"]}
    orders.write("mon.jsonl", "lamp, mended")
    assert orders.cycle() == 2
    assert orders.held() == {"mon.jsonl": ["lamp, mended"], "tue.jsonl": ["table, round"]}


def test_a_transform_may_drop_rows_but_not_the_url(watched):
    orders = watched(transform="SELECT upper(item) AS item, object_url FROM rows WHERE item <> 'chair'")
    orders.write("mon.jsonl", "lamp", "chair")
    orders.cycle()
    orders.write("mon.jsonl", "chair")
    assert orders.cycle() == 1
    assert orders.held() == {}
    watched(transform="SELECT item FROM rows")
    orders.write("mon.jsonl", "sofa")
    with pytest.raises(TransformFailed, match="leaves out or renames 'object_url'"):
        orders.cycle()
