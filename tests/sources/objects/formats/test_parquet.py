"""Parquet objects: their own columns, exactly; unified over a window; cut by row groups."""

from __future__ import annotations

import datetime as dt
import gzip
import io
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import SourceUnreachable
from headwater.model.position.stream_state import StreamState
from headwater.sources.objects.schema import infer_state
from tests.sources.objects.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def parquet(table: pa.Table | dict, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), out, **options)
    return out.getvalue()


def inferred(folder: ObjectFolder, known: dict | None = None, **more: object) -> dict[str, tuple[int, str]]:
    chosen = ObjectsSourceSettings(url=folder.container.address, format="parquet", **more)
    return dict(infer_state(StreamState(columns=known or {}), folder.pages(), chosen, folder.container).columns)


def read(folder: ObjectFolder, **more: object) -> list[dict]:
    return folder.rows(inferred(folder), format="parquet", **{"metadata": [], **more})


def moment(*parts: int) -> dt.datetime:
    """Without a zone."""
    return dt.datetime(*parts, tzinfo=dt.UTC).replace(tzinfo=None)


MOMENT = moment(2026, 3, 2, 8, 0, 0, 123456)


def test_columns_are_unified_as_iceberg_widens(folder: ObjectFolder):
    folder.put("1", parquet({"a": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")], pa.decimal128(4, 1))}))
    folder.put("2", parquet({"b": ["new"], "a": pa.array([2**40], pa.int64()), "n": pa.nulls(1)}))
    folder.put(
        "3", parquet({"d": pa.array([Decimal("123.5")], pa.decimal128(9, 1)), "f": pa.array([0.5], pa.float32())})
    )
    columns = inferred(folder)
    assert columns == {"a": (0, "bigint"), "d": (1, "decimal(9,1)"), "b": (2, "string"), "f": (3, "float")}
    rows = folder.rows(columns, format="parquet", metadata=["row"])
    assert [tuple(row.values()) for row in rows] == [
        (1, Decimal("1.5"), None, None, 1),
        (2**40, None, "new", None, 1),
        (None, Decimal("123.5"), None, 0.5, 1),
    ]
    folder.put("3", parquet({"f": [0.5]}))
    assert inferred(folder, columns)["f"] == (3, "double")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"a": ["text"]}, "column a is string in the object and bigint in the stream"),
        ({"a": [1.5]}, "column a is double in the object and bigint in the stream"),
        ({"A": [1]}, "column A does not fit among a"),
        ({"a": [1], "b": [1], "B": [2]}, "columns with empty or ambiguous names: 'b', 'B'"),
    ],
)
def test_an_object_with_other_columns_fails_and_the_others_do_not(folder: ObjectFolder, other: dict, reason: str):
    folder.put("1", parquet({"a": [1]}))
    folder.put("2", parquet(other))
    folder.put("3", parquet({"a": [3]}))
    assert [row["a"] for row in read(folder)] == [1, 3]
    assert folder.reasons() == {("2", None): reason}


def test_old_moments_are_instants(folder: ObjectFolder):
    far = moment(9999, 12, 31, 23, 59, 59, 999999)
    old = {"use_deprecated_int96_timestamps": True, "coerce_timestamps": None}
    folder.put("1", parquet({"t": pa.array([MOMENT, None, moment(1900, 1, 1)], pa.timestamp("us"))}, **old))
    folder.put("2", parquet({"t": pa.array([far, moment(1, 1, 1), MOMENT], pa.timestamp("us"))}, **old))
    folder.put("3", parquet({"t": pa.array([5, 1000], pa.timestamp("ns"))}, **old))
    rows = read(folder)
    assert inferred(folder) == {"t": (0, "timestamp")}
    utc = [None if row["t"] is None else row["t"].replace(tzinfo=None) for row in rows]
    assert utc == [MOMENT, None, moment(1900, 1, 1), far, moment(1, 1, 1), MOMENT, moment(1970, 1, 1, 0, 0, 0, 1)]
    assert list(folder.reasons()) == [("3", 1)]


def test_files_that_are_no_parquet_fail(folder: ObjectFolder):
    file = parquet({"a": range(50_000)}, use_dictionary=False)
    folder.put("0", file)
    broken = {"1": b"", "2": b"PAR1", "3": file[:-1], "4": file[:500] + file[-500:], "5": b"x" * 5000}
    broken["6"] = file[:5000] + b"\x55" * 500 + file[5500:]
    for key, content in broken.items():
        folder.put(key, content)
    assert len(read(folder)) == 50_000
    assert set(folder.reasons()) == {(key, None) for key in broken}
    assert all("Parquet" in reason for reason in folder.reasons().values())


def test_small_objects_make_few_batches(folder: ObjectFolder):
    for number in range(300):
        folder.put(f"{number:03}", parquet({"a": [number, number]}))
    columns = inferred(folder)
    (split,) = folder.splits(columns, format="parquet", metadata=["url", "row"])
    assert len(list(split.read())) == 1
    rows = folder.read([split])
    assert [(row["a"], row["object_row"]) for row in rows] == [(n // 2, n % 2 + 1) for n in range(600)]
    assert [row["object_url"] for row in rows] == [folder.container.url(f"{n // 2:03}") for n in range(600)]


def test_row_groups_of_a_large_object_are_read_by_several_tasks(folder: ObjectFolder):
    content = parquet({"a": range(10_000), "s": [f"text {n}" for n in range(10_000)]}, row_group_size=1000)
    folder.put("x", content)
    folder.put("y.gz", gzip.compress(content))
    columns = inferred(folder)
    splits = folder.splits(columns, format="parquet", split_bytes=20_000, metadata=["row"])
    assert len(splits) > 4
    assert sum(split.rows or 0 for split in splits if split.rows) >= 10_000
    rows = folder.read(splits)
    assert [row["a"] + 1 for row in rows] == [row["object_row"] for row in rows]
    assert sorted(row["a"] for row in rows) == sorted([*range(10_000)] * 2)


def test_a_broken_row_group_of_a_cut_object_is_a_reject_and_the_others_are_rows(folder: ObjectFolder):
    content = parquet({"a": range(10_000)}, row_group_size=1000, use_dictionary=False)
    about = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(3).column(0)
    at = about.data_page_offset + 100
    folder.put("x", content[:at] + b"\x55" * 300 + content[at + 300 :])
    splits = folder.splits(inferred(folder), format="parquet", split_bytes=5_000)
    assert len(splits) > 2
    assert sorted(row["a"] for row in folder.read(splits)) == [n for n in range(10_000) if n // 1000 != 3]
    (reject,) = folder.rejects
    assert reject.location["row"] == 3001
    assert reject.more["row_group"] == 3
    assert reject.reason.startswith("row group 3 (1,000 rows): bad Parquet")
    assert not reject.part


def test_a_cut_object_that_changes_stops_the_try(folder: ObjectFolder):
    folder.put("x", parquet({"a": range(10_000)}, row_group_size=1000))
    splits = folder.splits(inferred(folder), format="parquet", split_bytes=5_000)
    (folder.container.folder / "x").unlink()
    with pytest.raises(SourceUnreachable, match="changed while it was being read"):
        folder.read(splits)
