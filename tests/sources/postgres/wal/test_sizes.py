"""What is large: rows, tables, transactions, numbers of tables. Memory follows the largest row and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.compute as pc
import pytest

from headwater.pg.copy.reader import Tuning as CopyTuning
from headwater.sources.postgres.wal.transactions import Messages, Tuning, cut_pieces
from tests.sources.postgres.wal.slot_wal import slot_wal, splits_of

# Peak memory in MB after each of some reads, in a process of its own.
MEASURE = """
import json, resource, sys, tempfile
from pathlib import Path
import psycopg
from headwater.sources.postgres.wal.transactions import Peek
from headwater.sources.postgres.wal.reader import TableRequest, read_wal
from tests.sources.postgres.wal.slot_wal import column_types_of
url, slot, oid, *places = sys.argv[1:]
for place in places:
    with psycopg.connect(url, autocommit=True) as connection, tempfile.TemporaryDirectory() as folder:
        order = {int(oid): TableRequest("t", 0, 0, ("id",))}
        found = read_wal(connection, Peek(slot, "p", int(place)), order, column_types_of, Path(folder), after=0, stop=lambda _: False)
    print(json.dumps([sum(one.rows for one in found.segments), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measured(log, *places: int) -> list[tuple[int, float]]:
    arguments = [sys.executable, "-c", MEASURE, log.url, log.slot, str(log.oid("t")), *map(str, places)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_transaction_of_300_000_rows_needs_no_more_memory_than_one_of_30_000(database):
    with slot_wal(database, "CREATE TABLE t (id int PRIMARY KEY, v text)") as log:
        log.sql("INSERT INTO t SELECT n, repeat('x', 500) FROM generate_series(1, 30000) n")
        small = log.read({"t": ("id",)}).wal.last.end
        log.sql("INSERT INTO t SELECT -n, repeat('y', 500) FROM generate_series(1, 300000) n")
        (place,) = log.sql("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        (few, before), (many, after) = measured(log, small, place)
    assert (few, many) == (30_000, 330_000)
    assert after - before < 40, "165 MB of rows"


@pytest.mark.slow
def test_a_row_of_50_mb_and_rows_beside_it(database):
    with slot_wal(database, "CREATE TABLE t (id int PRIMARY KEY, v text, w text, b bytea)") as log:
        log.sql("INSERT INTO t VALUES (1, 'small')")
        log.sql(
            "BEGIN; INSERT INTO t VALUES (2, repeat('é', 26214400), 'w'); INSERT INTO t VALUES (3, 'small'); COMMIT"
        )
        log.sql("INSERT INTO t SELECT 4, '', '', decode(repeat('00ff', 10000000), 'hex')")
        log.sql("INSERT INTO t SELECT n, 'small' FROM generate_series(5, 1000) n")
        (table,) = log.read({"t": ("id",)}).tables["t"]
        assert table["id"].to_pylist() == list(range(1, 1001))
        assert pc.binary_length(table["v"]).to_pylist()[:4] == [5, 50 << 20, 5, 0]
        assert (pc.binary_length(table["b"])[3].as_py(), table["b"][3].as_py()[-2:]) == (20_000_000, b"\0\xff")
        (place,) = log.sql("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchone()
        ((_, peak),) = measured(log, place)
        assert peak < 900


def test_a_table_of_1_600_columns(database):
    names = [f"c{number}" for number in range(1599)]
    with slot_wal(
        database, f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{name} int' for name in names)})"
    ) as log:
        log.sql(f"INSERT INTO t SELECT n, {', '.join(['n'] * 700)} FROM generate_series(1, 50) n")
        log.sql(
            "UPDATE t SET c1598 = 7 WHERE id <= 10; UPDATE t SET id = -id WHERE id > 45; DELETE FROM t WHERE id = 20"
        )
        read = log.read({"t": ("id",)})
        rows = read.rows("t")
        assert len(rows) == 50 + 10 + 2 * 5 + 1
        assert [row["c1598"] for row in rows[48:52]] == [None, None, 7, 7]
        assert (rows[50]["c699"], rows[50]["c700"], len(rows[50])) == (rows[50]["id"], None, 1600 + 7)


def test_many_tables_in_turn_make_few_batches(database):
    small = CopyTuning(chunk_bytes=4 << 10)
    tables = [f"t{number}" for number in range(40)]
    with slot_wal(database, "".join(f"CREATE TABLE {name} (id int PRIMARY KEY);" for name in tables)) as log:
        for number in range(50):
            log.sql("".join(f"INSERT INTO {name} VALUES ({number});" for name in tables))
        wal = log.read(dict.fromkeys(tables, ("id",)), tuning=Tuning(small)).wal
        assert {(segment.rows, len(segment.batches)) for segment in wal.segments} == {(50, 1)}
        bounded = log.read(dict.fromkeys(tables, ("id",)), tuning=Tuning(small, pending_bytes=200_000)).wal
        assert {segment.rows for segment in bounded.segments} == {50}
        assert all(1 < len(segment.batches) < 10 for segment in bounded.segments)


def test_pieces_of_a_chunk_never_reach_beyond_what_offsets_can_say():
    """A chunk is as large as the largest message that it once held; a piece is not."""
    import numpy as np

    sizes = np.array([10, 60, 30, 40, 500, 1, 2, 99, 100])
    ends = np.cumsum(sizes + 7)
    data = np.arange(ends[-1] + 64, dtype=np.uint64).astype(np.uint8)
    chunk = Messages(data, ends - sizes, ends)
    pieces = list(cut_pieces(chunk, 100))
    messages = [piece.data[start:end] for piece in pieces for start, end in zip(piece.starts, piece.ends, strict=True)]
    assert [len(one) for one in messages] == sizes.tolist()
    assert all((one == data[end - size : end]).all() for one, end, size in zip(messages, ends, sizes, strict=True))
    assert all(len(piece) == 1 or piece.ends[-1] <= 100 for piece in pieces)
    assert [len(piece) for piece in pieces] == [2, 2, 1, 2, 1, 1]


@pytest.mark.parametrize("splits", [1, 2, 3, 100])
def test_a_large_segment_is_cut_into_splits_of_its_batches(database, splits, tmp_path):
    tuning = Tuning(CopyTuning(chunk_bytes=16 << 10), batch_bytes=20_000)
    with slot_wal(database, "CREATE TABLE t (id int PRIMARY KEY, v text)") as log:
        log.sql("INSERT INTO t SELECT n, repeat('x', n % 50) FROM generate_series(1, 5000) n")
        (segment,) = log.read_into(tmp_path, {"t": ("id",)}, tuning=tuning).segments
    parts = splits_of(segment, splits)
    assert len(parts) == min(splits, len(segment.batches))
    assert len(segment.batches) > 10
    ids = [batch["id"].to_pylist() for part in parts for batch in part.read()]
    assert [number for batch in ids for number in batch] == list(range(1, 5001))
    assert sum(part.rows for part in parts) == 5000
    assert max(part.rows for part in parts) < 5000 / len(parts) + 1000
