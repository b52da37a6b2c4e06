"""Copy-on-write: files that lose rows are rewritten, and the rows that remain do not change."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.model.errors import LeaseLost
from headwater.sinks.iceberg.data_files import ArrowColumn
from headwater.sinks.iceberg.merge.copy_on_write import can_be_copied
from headwater.sinks.iceberg.merge.strategy import Tuning
from headwater.sinks.iceberg.schema import FIELD_ID
from headwater.testing.change_log import ChangeLog
from tests.sinks.iceberg.catalog.test_publish import Once
from tests.sinks.iceberg.catalog.test_table import scanned
from tests.sinks.iceberg.cdc.test_current_state import Target, plainly
from tests.sinks.iceberg.lake_table import LakeTable, orders, table_rows

pytestmark = pytest.mark.spark

COPY = {"mode": "merge", "upsert": "copy-on-write"}


def files(lands: LakeTable) -> list[tuple[int, int]]:
    """Content (0: rows, 1: deletes) and rows of every file of the head."""
    files = lands.spark.sql(f"SELECT content, record_count FROM {lands.table}.files").collect()
    return sorted((row.content, row.record_count) for row in files)


def test_nothing_is_marked_as_deleted_and_small_files_become_one(lands: LakeTable, lake_folder: Path) -> None:
    sink = lands.sink(**COPY)
    for number in range(1, 5):
        sink.land(lands.attempt(number), orders([0, number, 20], f"{number}"))
    assert files(lands) == [(0, 3), (0, 3)]  # what is left of the windows before, and the last window's rows
    assert [row["note"] for row in lands.rows()] == ["4 0", "1 1", "2 2", "3 3", "4 4", "4 20"]
    assert scanned(lands).num_rows == 6
    assert lands.files(lake_folder) == lands.referenced()


def test_rows_that_are_carried_over_keep_their_ids_and_the_age_of_their_values(lands: LakeTable) -> None:
    def lineage() -> dict[int, tuple[int, int]]:
        row_lineage = lands.spark.sql(f"SELECT id, _row_id, _last_updated_sequence_number FROM {lands.table}").collect()
        return {row[0]: (row[1], row[2]) for row in row_lineage}

    sink = lands.sink(**COPY)
    sink.land(lands.attempt(1), orders(range(6), splits=2))
    first = lineage()
    for number, changed in ((2, 1), (3, 4)):
        sink.land(lands.attempt(number), orders([changed], f"{number}"))
        untouched = {key: row_lineage for key, row_lineage in lineage().items() if key not in {1, 4}}
        assert untouched == {key: row_lineage for key, row_lineage in first.items() if key not in {1, 4}}
    assert lineage()[4][1] > first[4][1]
    assert len({row for row, _ in lineage().values()}) == 6


def test_only_files_that_lose_rows_are_copied_where_files_are_large(lands: LakeTable) -> None:
    sink = lands.sink(**COPY, tuning=Tuning(small_file_bytes=0))
    sink.land(lands.attempt(1), orders([1, 5, 9], "old"))
    sink.land(lands.attempt(2), orders([2, 6], "old"))
    before = {row.file_path for row in lands.spark.sql(f"SELECT file_path FROM {lands.table}.files").collect()}
    sink.land(lands.attempt(3), orders([5], "new"))
    after = {row.file_path for row in lands.spark.sql(f"SELECT file_path FROM {lands.table}.files").collect()}
    assert len(before & after) == 1
    assert files(lands) == [(0, 1), (0, 2), (0, 2)]


def test_a_file_that_was_written_before_a_default_keeps_its_value(lands: LakeTable) -> None:
    """Iceberg gives rows of older files the column's first default; a copy must not write NULL instead."""
    sink = lands.sink(**COPY)
    sink.land(lands.attempt(1), orders([1, 2], "old"))
    jvm = lands.spark._jvm  # Spark's SQL gives existing rows no default  # noqa: SLF001 - PySpark's door to the JVM
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lands.spark._jsparkSession, lands.table)  # noqa: SLF001 - PySpark's door to the JVM
    kind = jvm.org.apache.iceberg.types.Types.IntegerType.get()
    literal = jvm.org.apache.iceberg.expressions.Literal.of(7)
    table.updateSchema().addColumn("grade", kind, literal).commit()
    lands.spark.catalog.refreshTable(lands.table)
    landing = sink.land(lands.attempt(2), orders([1], "new"))
    assert landing.proof["upsert"] == "copy-on-write"
    assert [(row["id"], row["grade"]) for row in lands.rows()] == [(1, None), (2, 7)]


def test_what_can_be_copied_is_decided_by_ids(lands: LakeTable) -> None:
    del lands

    def field(name: str, kind: pa.DataType, number: int | None, *, nullable: bool = True) -> pa.Field:
        return pa.field(name, kind, nullable, {FIELD_ID: str(number).encode()} if number else None)

    nested = pa.struct([field("x", pa.int32(), 3)])
    target = pa.schema([field("id", pa.int64(), 1, nullable=False), field("deep", nested, 2)])
    columns = [ArrowColumn(1, "id", pa.int64()), ArrowColumn(2, "deep", nested)]

    def verdict(*fields: pa.Field, defaults: frozenset[int] = frozenset()) -> bool:
        return can_be_copied(pa.schema(fields), target, columns, defaults)

    own = field("id", pa.int32(), 1)
    assert verdict(own, field("deep", nested, 2))
    assert verdict(field("former", pa.int64(), 1), field("deep", nested, 2)), "a column that was renamed"
    assert verdict(own), "a column that came later is NULL"
    assert not verdict(own, defaults=frozenset({2})), "a column that came later, with a value"
    assert not verdict(field("deep", nested, 2)), "a required column that is not there"
    assert not verdict(pa.field("id", pa.int64()), pa.field("deep", nested)), "a file without ids"
    assert not verdict(own, field("deep", pa.struct([field("x", pa.int64(), 3)]), 2)), "widened from within"
    assert not verdict(own, field("deep", pa.struct([field("x", pa.int32(), 4)]), 2)), "another field of that name"


def test_a_file_that_cannot_be_copied_is_marked_instead(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge", key=["id"], upsert="copy-on-write")
    deep = pa.array([{"x": n} for n in range(4)], pa.struct([("x", pa.int32())]))
    sink.land(lands.attempt(1), table_rows(pa.table({"id": [0, 1, 2, 3], "deep": deep})))
    lands.spark.sql(f"ALTER TABLE {lands.table} ADD COLUMN deep.y string")
    wider = pa.struct([("x", pa.int32()), ("y", pa.string())])
    sink.land(lands.attempt(2), table_rows(pa.table({"id": [2], "deep": pa.array([{"x": 9, "y": "z"}], wider)})))
    assert [(row["id"], row["deep"].x, row["deep"].y) for row in lands.rows()] == [
        (0, 0, None), (1, 1, None), (2, 9, "z"), (3, 3, None),
    ]  # fmt: skip
    assert files(lands) == [(0, 1), (0, 4), (1, 1)]


@pytest.mark.parametrize("step", ["land.written", "leased"])
def test_a_foreign_insert_while_files_are_copied_is_seen(lands: LakeTable, lake_folder: Path, step: str) -> None:
    lands.land(orders(range(5), "old"), 99, **COPY)
    insert = Once(
        lambda: lands.spark.sql(f"INSERT INTO {lands.table} VALUES (3, 'foreign 3', 1), (50, 'f 50', 1)"), step
    )
    options = {"ensure_lease": insert} if step == "leased" else {"faults": insert}
    lands.sink(**COPY).land(lands.attempt(1, **options), orders([3, 7], "new"))
    assert [(row["id"], row["note"]) for row in lands.rows()] == [
        (0, "old 0"), (1, "old 1"), (2, "old 2"), (3, "new 3"), (4, "old 4"), (7, "new 7"), (50, "f 50"),
    ]  # fmt: skip
    assert not [name for name in lands.files(lake_folder) - lands.referenced() if "run" in name]


def test_a_writer_that_lost_its_lease_leaves_no_copy(lands: LakeTable, lake_folder: Path) -> None:
    lands.land(orders(range(5), "old"), 99, **COPY)

    def lost() -> None:
        raise LeaseLost("gone")

    with pytest.raises(LeaseLost):
        lands.sink(**COPY).land(lands.attempt(1, ensure_lease=lost), orders([3]))
    assert lands.files(lake_folder) == lands.referenced()
    assert {row["note"] for row in lands.rows()} == {f"old {n}" for n in range(5)}


@pytest.mark.parametrize("version", ["2", "3"])
def test_deletes_are_remembered_in_copies_of_copies(lands: LakeTable, version: str) -> None:
    log = ChangeLog()
    target = Target(lands, upsert="copy-on-write", properties={"format-version": version})
    for key in range(1, 5):
        log.insert(key, "a", "A")
    log.delete(1)
    log.update(2, "b")
    for number in range(5):
        log.update(3, f"c{number}")
    events = plainly(log)
    for begin, end in itertools.pairwise([0, 4, 5, 6, 7, 8, 9, 10, 11]):
        target.land(events[begin:end])
    target.land(events[:1])  # the insert of a row that was deleted, long after
    target.land([(0, 99, replace(events[1][2], note="late"))])
    assert target.rows() == log.rows
    assert 1 not in target.rows()


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_moved_row_finds_its_values_in_copies_of_rows_that_nobody_sees(lands: LakeTable, version: str) -> None:
    log = ChangeLog()
    target = Target(lands, upsert="copy-on-write", properties={"format-version": version})
    log.insert(1, "a", "long")
    log.insert(2, "b", "B")
    log.move(1, 9, "c")
    log.insert(1, "d", "other")
    log.update(2, "e")
    insert, other, delete, moved, again, update = plainly(log)
    for window in ([insert, other], [delete, again], [update], [moved]):
        target.land(window)
    assert not target.rejects
    assert target.rows() == log.rows == {1: ("d", "other"), 2: ("e", "B"), 9: ("c", "long")}
