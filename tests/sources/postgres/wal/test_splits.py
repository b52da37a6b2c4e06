"""Segments as splits, in the columns that the stream has in the window."""

from __future__ import annotations

import json
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.model.errors import ValueNotKept
from headwater.pg.copy.reader import Tuning as CopyTuning
from headwater.sources.postgres.catalog import change_schema
from headwater.sources.postgres.wal.segment import cut
from headwater.sources.postgres.wal.transactions import Tuning
from tests.sources.postgres.wal.slot_wal import slot_wal, splits_of


@pytest.fixture
def log(database):
    ddl = "CREATE TABLE t (id int PRIMARY KEY, n int, price numeric(8,2), half real, big text, day date); ALTER TABLE t ALTER big SET STORAGE EXTERNAL"
    with slot_wal(database, ddl) as log:
        yield log


def test_values_go_to_their_homes_and_what_the_table_has_not_is_null(log, tmp_path):
    log.sql("INSERT INTO t VALUES (1, 2, 1.5, 0.1, repeat('x', 3000), '2026-01-01'); UPDATE t SET n = 3")
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}).segments
    columns = [("new", pa.string()), ("price", pa.decimal128(12, 2)), ("big__string", pa.string()), ("id", pa.int64()), ("half", pa.float64())]  # fmt: skip
    schema = change_schema(pa.field(*column) for column in columns)
    homes = [("id", "id"), ("price", "price"), ("half", "half"), ("big", "big__string"), ("n", "n__int32")]
    (split,) = cut(segment, 3, homes, schema)
    (batch,) = pickle.loads(pickle.dumps(split)).read()  # noqa: S301 - our own bytes
    assert batch.schema == schema
    first, second = batch.to_pylist()
    assert {name: first[name] for name, _ in columns} == {
        "new": None, "price": Decimal("1.50"), "big__string": "x" * 3000, "id": 1, "half": 0.10000000149011612,
    }  # fmt: skip
    assert (second["_op"], second["_missing"]) == ("u", ["big__string"])


def test_what_is_left_out_of_a_column_that_the_schema_has_not_is_not_missing(log, tmp_path):
    log.sql("INSERT INTO t (id, big) VALUES (1, repeat('x', 3000)); UPDATE t SET n = 3")
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}).segments
    (split,) = cut(segment, 1, [("id", "other")], change_schema([pa.field("other", pa.int32())]))
    (batch,) = split.read()
    assert batch["_missing"].to_pylist() == [None, None]
    assert batch["other"].to_pylist() == [1, 1]


def test_rejects_stop_a_read_or_are_set_aside_once(log, tmp_path):
    log.sql(
        "INSERT INTO t (id, price, day) VALUES (1, 1, '2026-01-01'), (2, 'NaN', 'infinity'), (3, 2, '0044-03-15 BC')"
    )
    log.sql("UPDATE t SET day = '2026-01-02' WHERE id = 3; UPDATE t SET n = 4 WHERE id = 2")
    tuning = Tuning(CopyTuning(chunk_bytes=64), batch_bytes=1)
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}, tuning=tuning).segments
    assert (segment.rows, segment.rejects) == (2, 3)
    splits = splits_of(segment, 2)
    assert len(splits) == 2
    with pytest.raises(ValueNotKept, match=r"t: the change at \w+/\w+, number 2, and 2 more .*NaN or infinity"):
        list(splits[0].read())
    rejects = []
    rows = [row for split in splits for batch in split.read(rejects.append) for row in batch.to_pylist()]
    assert [(row["_op"], row["id"]) for row in rows] == [("c", 1), ("u", 3)]
    assert [reject.reason for reject in rejects] == [
        "column price (decimal(8,2)): NaN or infinity; column day (date): infinite, or outside the years 1 to 9999",
        "column day (date): infinite, or outside the years 1 to 9999",
        "column price (decimal(8,2)): NaN or infinity; column day (date): infinite, or outside the years 1 to 9999",
    ]
    assert json.loads(rejects[0].payload) == {
        "id": "2",
        "n": None,
        "price": "NaN",
        "half": None,
        "big": None,
        "day": "infinity",
    }
    assert rejects[0].location == {"lsn": rejects[1].location["lsn"], "number": 2}
    assert len({reject.id for reject in rejects}) == 3
    assert rejects[2].more["op"] == "u"
    again = []
    list(splits_of(log.read_into(tmp_path_of(tmp_path), {"t": ("id",)}).segments[0])[0].read(again.append))
    assert [reject.id for reject in again] == [reject.id for reject in rejects], "a replay names them alike"


def tmp_path_of(folder):
    copy = folder / "again"
    copy.mkdir()
    return copy


def test_a_row_that_leaves_a_key_that_was_never_kept_is_kept(database, tmp_path):
    with slot_wal(
        database, "CREATE TABLE t (day date PRIMARY KEY, big text); ALTER TABLE t ALTER big SET STORAGE EXTERNAL"
    ) as log:
        log.sql("INSERT INTO t VALUES ('infinity', 'a'); UPDATE t SET day = '2026-01-01'")
        log.sql("UPDATE t SET day = '2026-01-02'; UPDATE t SET day = '-infinity', big = repeat('x', 3000)")
        log.sql("UPDATE t SET day = '2026-01-03'")
        read = log.read({"t": ("day",)})
    assert [(op, day and day.day, old) for op, day, old in read.short("t", "day", "_old_key")] == [
        ("c", 1, None), ("d", 1, None), ("c", 2, '["2026-01-01"]'), ("d", 2, None),
    ]  # fmt: skip
    outside = "column day (date): infinite, or outside the years 1 to 9999"
    assert [(reject.more["op"], reject.reason) for reject in read.rejects] == [
        ("c", outside), ("d", outside), ("c", outside), ("d", outside),
        ("c", f"the former key: {outside}"),  # and its value in TOAST stands nowhere
    ]  # fmt: skip
    assert read.rejects[-1].more["missing"] == ["big"]


def test_a_segment_of_rejects_alone_still_tells_them(log, tmp_path):
    log.sql("INSERT INTO t (id, day) VALUES (1, 'infinity')")
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}).segments
    assert (segment.rows, segment.rejects, segment.batches) == (0, 1, ())
    (split,) = splits_of(segment, 4)
    rejects = []
    assert list(split.read(rejects.append)) == []
    assert len(rejects) == 1


def test_a_split_shows_no_values_and_can_be_read_again(log, tmp_path):
    log.sql("INSERT INTO t (id, big) VALUES (1, 'secret')")
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}).segments
    (split,) = splits_of(segment)
    assert "secret" not in repr(split)
    assert list(split.read()) == list(split.read())
    assert split.rows == 1


def test_the_file_is_a_stream_that_arrow_itself_reads(log, tmp_path):
    log.sql("INSERT INTO t (id) SELECT generate_series(1, 10)")
    (segment,) = log.read_into(tmp_path, {"t": ("id",)}).segments
    with pa.memory_map(segment.path) as file:
        assert pa.ipc.open_stream(file).read_all()["id"].to_pylist() == list(range(1, 11))
