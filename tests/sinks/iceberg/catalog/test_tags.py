"""Tags on the heads of tables: made once, behind the lease, never moved."""

from __future__ import annotations

import pytest

from headwater.model.errors import LeaseLost, RunError
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark

STREAM = ("shop.orders",)


def test_a_tag_that_is_there_stays_where_it_is(lands: LakeTable):
    lands.land(orders([1]), 1)
    lands.sink().tag(lands.attempt(1), STREAM, ["a", "b"])
    lands.land(orders([2]), 2)
    lands.sink().tag(lands.attempt(2), STREAM, ["a", "c"])
    seen = {name: lands.spark.sql(f"SELECT * FROM {lands.table} VERSION AS OF '{name}'").count() for name in "abc"}
    assert seen == {"a": 1, "b": 1, "c": 2}
    assert lands.sink().tagged(lands.spark, STREAM, "a") == [lands.table]
    assert lands.sink().tagged(lands.spark, ("shop.none",), "a") == [lands.table], "one name for all streams"
    assert lands.sink().tagged(lands.spark, STREAM, "d") == []


def test_a_tag_of_another_history_is_an_error(lands: LakeTable):
    lands.land(orders([1]), 1)
    first = lands.spark.sql(f"SELECT snapshot_id FROM {lands.table}.snapshots").first()[0]
    lands.land(orders([2]), 2)
    lands.sink().tag(lands.attempt(2), STREAM, ["a"])
    catalog, rest = lands.table.split(".", 1)
    lands.spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{rest}', {first})")
    lands.land(orders([3]), 3)
    with pytest.raises(RunError, match="the tag a exists") as raised:
        lands.sink().tag(lands.attempt(3), STREAM, ["a"])
    lands.spark.sql(raised.value.hint.partition(": ")[2])
    lands.sink().tag(lands.attempt(3), STREAM, ["a"])
    lands.spark.sql(f"ALTER TABLE {lands.table} CREATE BRANCH b")
    with pytest.raises(RunError, match="the branch b exists"):
        lands.sink().tag(lands.attempt(3), STREAM, ["b"])


def test_expiring_snapshots_keeps_what_has_a_tag(lands: LakeTable):
    """And a label that comes again after a rewind is recognised, though snapshots in between are gone."""
    for number in range(1, 5):
        lands.land(orders([number]), number)
        if number == 1:
            lands.sink().tag(lands.attempt(1), STREAM, ["a"])
    catalog, rest = lands.table.split(".", 1)
    lands.spark.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{rest}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert len(lands.snapshots()) == 2
    assert lands.spark.sql(f"SELECT * FROM {lands.table} VERSION AS OF 'a'").count() == 1
    lands.sink().tag(lands.attempt(5), STREAM, ["a"])
    assert lands.spark.sql(f"SELECT * FROM {lands.table} VERSION AS OF 'a'").count() == 1


def test_a_process_that_lost_its_lease_makes_no_tag(lands: LakeTable):
    """G4"""
    lands.sink().land(lands.attempt(1, epoch=2), orders([1]))

    def lost() -> None:
        raise LeaseLost("gone")

    with pytest.raises(LeaseLost):
        lands.sink().tag(lands.attempt(2, epoch=2, ensure_lease=lost), STREAM, ["a"])
    with pytest.raises(LeaseLost, match="took over"):
        lands.sink().tag(lands.attempt(2, epoch=1), STREAM, ["a"])
    assert lands.refs() == {"main"}


def test_another_writer_in_between_does_not_take_the_tag_away(lands: LakeTable):
    lands.land(orders([1]), 1)
    done = []

    def insert() -> None:
        if not done:
            done.append(lands.spark.sql(f"INSERT INTO {lands.table} VALUES (7, 'foreign', 1)"))

    lands.sink().tag(lands.attempt(2, ensure_lease=insert), STREAM, ["a"])
    assert lands.spark.sql(f"SELECT * FROM {lands.table} VERSION AS OF 'a'").count() == 2
