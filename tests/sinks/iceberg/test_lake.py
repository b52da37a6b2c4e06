"""The lake as the engine sees it: tables, landings, rows at a mark, removed keys, a rebuild."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.model.errors import InputError, RunError
from headwater.model.protocols.lake import Lake, LakeSink
from headwater.model.rows import Rows
from headwater.sinks.iceberg.sink import IcebergSink
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark

STREAM = "shop.orders"


def lake_of(lands: LakeTable, sink: IcebergSink) -> Lake:
    assert isinstance(sink, LakeSink)
    return sink.lake(lands.spark)


def notes(rows: Rows) -> list[str]:
    assert rows.splits is not None
    batches = [batch for split in rows.splits for batch in split.read()]
    return sorted(note for batch in batches for note in batch.column("note").to_pylist())


def test_a_table_is_described_once_it_exists(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    lake = lake_of(lands, sink)
    assert lake.table(STREAM) is None
    assert lake.history("p", STREAM) is None
    assert sink.table_name(STREAM) == lands.table
    sink.land(lands.attempt(1), orders([1]))
    info = lake.table(STREAM)
    assert info is not None
    assert (info.name, info.columns, info.key) == (lands.table, ("id", "note", "seq"), ("id",))


def test_the_table_is_read_before_the_earliest_later_landing(lands: LakeTable) -> None:
    sink, source = lands.sink(mode="merge"), orders([1])
    attempts = [lands.attempt(number) for number in (1, 2, 3)]
    for attempt, text in zip(attempts, ("first", "second", "third"), strict=True):
        sink.land(attempt, orders([1, 2], text))
    lake, pipeline = lake_of(lands, sink), attempts[0].pipeline
    windows = [attempt.window.id for attempt in attempts]
    history, others = lake.history(pipeline, STREAM), lake.history("another", STREAM)
    assert history is not None
    assert others is not None
    sink.land(lands.attempt(4), orders([1, 2], "after the history was read"))
    assert notes(history.before(lambda _: False).rows(source, source.schema)) == ["third 1", "third 2"]
    assert notes(others.before(lambda _: True).rows(source, source.schema)) == ["third 1", "third 2"]
    snapshot = history.before(lambda landing: landing.window in windows[1:])
    assert sum(file.rows for file in snapshot.files()) == 2
    assert [file.bounds for file in snapshot.files("id")] == [(1, 2)]
    schema = snapshot.schema_for(source)
    assert notes(snapshot.rows(source, schema)) == ["first 1", "first 2"]
    assert notes(snapshot.rows(source, schema, [(5, 9)], "id")) == []
    empty = history.before(lambda _: True)
    assert (empty.snapshot, notes(empty.rows(source, schema))) == (None, [])


def test_keys_are_removed_in_a_landing(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    sink.land(lands.attempt(1), orders([1, 2, 3]))
    landing = lake_of(lands, sink).remove_keys(lands.attempt(2), STREAM, pa.table({"id": [2]}))
    assert (landing.rows, landing.proof["removed"]) == (0, 1)
    assert [row["id"] for row in lands.rows()] == [1, 3]


def test_statements_of_spark_find_a_catalog_that_the_users_session_got_after_its_start(
    lands: LakeTable, tmp_path: Path
) -> None:
    session = lands.spark.newSession()
    session.conf.set("spark.sql.catalog.later", "org.apache.iceberg.spark.SparkCatalog")
    for option, value in {"type": "hadoop", "warehouse": str(tmp_path), "cache-enabled": "false"}.items():
        session.conf.set(f"spark.sql.catalog.later.{option}", value)
    session.sql("CREATE NAMESPACE later.shop")
    later = LakeTable(session, "later.shop")
    sink = later.sink(mode="merge", upsert="merge")
    for number in (1, 2):
        sink.land(later.attempt(number), orders([1, 2], f"version {number} of"))
    lake_of(later, sink).remove_keys(later.attempt(3), STREAM, pa.table({"id": [2]}))
    assert [row["note"] for row in later.rows()] == ["version 2 of 1"]


def test_a_rebuild_is_invisible_until_it_is_published(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    lake = lake_of(lands, sink)
    with pytest.raises(InputError, match="does not exist"), lake.rebuild(STREAM, "again"):
        pass
    sink.land(lands.attempt(1), orders([1, 2], "old"))
    with lake.rebuild(STREAM, "again") as rebuild:
        rebuild.sink.land(lands.attempt(2), orders([3], "new"))
        assert [row["note"] for row in lands.rows()] == ["old 1", "old 2"]
        rebuild.publish(lands.attempt(3))
    assert [row["note"] for row in lands.rows()] == ["new 3"]
    assert lands.refs() == {"main"}


def test_a_rebuild_that_fails_leaves_no_branch(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge")
    sink.land(lands.attempt(1), orders([1], "old"))
    with pytest.raises(ZeroDivisionError), lake_of(lands, sink).rebuild(STREAM, "again") as rebuild:
        rebuild.sink.land(lands.attempt(2), orders([3], "new"))
        raise ZeroDivisionError
    assert [row["note"] for row in lands.rows()] == ["old 1"]
    assert lands.refs() == {"main"}


def test_a_repair_lands_keys_that_the_table_has(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge", upsert="append")
    sink.land(lands.attempt(1), orders([1], "old"))
    with pytest.raises(RunError):
        sink.land(lands.attempt(2), orders([1], "new"))
    assert isinstance(sink, LakeSink)
    sink.for_repair().land(lands.attempt(3), orders([1], "new"))
    assert [row["note"] for row in lands.rows()] == ["new 1"]


def test_the_tables_of_a_pipeline_are_found_by_their_owner(lands: LakeTable) -> None:
    template = f"{lands.namespace}.{{stream}}_copy"
    sink = lands.sink(table=template)
    attempt = lands.attempt(1)
    sink.land(attempt, orders([1]))
    sink.land(attempt, orders([1], stream="shop.items"))
    lands.land(orders([1]))
    lake = lake_of(lands, sink)
    names = sorted(info.name for info in lake.tables_of(attempt.pipeline))
    assert names == [f"{lands.namespace}.items_copy", f"{lands.namespace}.orders_copy"]
    assert lake.tables_of("another") == []
