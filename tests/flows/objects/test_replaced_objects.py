"""A folder whose objects change, in a table with `mode: replace_object`: from the listing to the snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.model.errors import TransformFailed
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class ItemObjects(World):
    """A folder of JSON objects, and a pipeline that lands them."""

    def __init__(self, folder: Path, spark: SparkSession, table: str, **settings: str) -> None:
        self.table = table
        source = {"url": "in/", "deleted": "remove_rows", "schema": "item string"}
        sinks = [{"iceberg": {"table": table, "mode": "replace_object"}}]
        super().__init__(folder, {"objects": source}, sinks, spark=spark, **settings)

    def write(self, name: str, *items: str) -> None:
        target = self.folder / "in" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(json.dumps({"item": item}) + "\n" for item in items))

    def cycle(self) -> int:
        """Land what is new; how many rows went."""
        result = self.run()
        if result.error:
            raise result.error
        return sum(landing.proof.get("removed", 0) for landing in result.landings)

    def content(self) -> dict[str, list[str]]:
        items: dict[str, list[str]] = {}
        for url, item in self.select(f"SELECT object_url, item FROM {self.table} ORDER BY item"):
            items.setdefault(url.rpartition("/in/")[2], []).append(item)
        return items


@pytest.fixture
def orders(spark, namespace, tmp_path) -> ItemObjects:
    return ItemObjects(tmp_path, spark, f"{namespace}.orders")


def test_objects_that_change_empty_or_vanish_take_their_rows_with_them(orders):
    orders.write("mon day.jsonl", "lamp", "chair")
    orders.write("tue.jsonl", "table")
    orders.write("wed.jsonl", "sofa")
    assert orders.cycle() == 0
    orders.write("mon day.jsonl", "lamp, green")
    orders.write("tue.jsonl")
    (orders.folder / "in" / "wed.jsonl").unlink()
    orders.write("thu.jsonl", "desk")
    assert orders.cycle() == 4
    assert orders.content() == {"mon day.jsonl": ["lamp, green"], "thu.jsonl": ["desk"]}
    assert orders.cycle() == 0


def test_an_object_that_breaks_keeps_its_rows_until_it_is_mended(orders):
    orders.write("mon.jsonl", "lamp", "chair")
    orders.write("tue.jsonl", "table")
    orders.cycle()
    (orders.folder / "in" / "mon.jsonl").write_bytes(b"\xff\x00 no text at all")
    orders.write("tue.jsonl", "table, round")
    assert orders.cycle() == 1
    assert orders.content() == {"mon.jsonl": ["chair", "lamp"], "tue.jsonl": ["table, round"]}
    orders.write("mon.jsonl", "lamp, mended")
    assert orders.cycle() == 2
    assert orders.content() == {"mon.jsonl": ["lamp, mended"], "tue.jsonl": ["table, round"]}


def test_a_transform_may_drop_rows_but_not_the_url(orders):
    orders.configure(transform="SELECT upper(item) AS item, object_url FROM rows WHERE item <> 'chair'")
    orders.write("mon.jsonl", "lamp", "chair")
    orders.cycle()
    orders.write("mon.jsonl", "chair")
    assert orders.cycle() == 1
    assert orders.content() == {}
    orders.configure(transform="SELECT item FROM rows")
    orders.write("mon.jsonl", "sofa")
    with pytest.raises(TransformFailed, match="leaves out or renames 'object_url'"):
        orders.cycle()
