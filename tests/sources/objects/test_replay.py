"""Rejects of objects tried again, under the settings as they are now."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.position.stream_state import StreamState
from headwater.model.rows import Reject
from headwater.sources.objects.content import ReadSettings
from headwater.sources.objects.rows import replay
from tests.sources.objects.object_folder import ObjectFolder

METADATA = {"url": "u", "row": "n"}


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def replayed(folder: ObjectFolder, columns: dict | None = None, **settings: object) -> tuple[list[dict], list[Reject]]:
    """Of what is in `rejects` now: rows, and what is set aside again."""
    chosen = ObjectsSourceSettings(url=folder.container.address, metadata=METADATA, **settings)
    stored = [Reject.from_json(reject.to_json()) for reject in folder.rejects]
    rows, rejects = [], []
    reading = ReadSettings.of(chosen, StreamState(columns=columns or {}), "things")
    for stream in replay(stored, reading, folder.container):
        for split in stream.splits:
            for batch in pickle.loads(pickle.dumps(split)).read(rejects.append):  # noqa: S301
                assert batch.schema == stream.schema
                rows += batch.to_pylist()
    return rows, rejects


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"a": 1}\n\n{"a": "x"}\n', {}),
        (b'[{"a": 1},\n{"a": 2},\n{"a":\n "x"}]', {}),
        (b"b,a\n,1\n,x\n", {"format": "csv"}),
        (b"9;1\n8;3\n'9\n';x\n", {"format": "csv", "csv": {"delimiter": ";", "quote": "'", "header": False}}),
    ],
)
def test_rows_come_back_from_their_own_bytes_with_their_place(folder: ObjectFolder, content: bytes, kind: dict):
    folder.put("k", content)
    ddl = "z string, a {}" if "csv" in kind else "a {}"
    folder.rows(schema=ddl.format("bigint"), **kind)
    before = list(folder.rejects)
    assert [r.location["row"] for r in before] == [3]
    (folder.container.folder / "k").unlink()

    rows, rejects = replayed(folder, schema=ddl.format("string"), **kind)
    assert [(row["a"], row["u"], row["n"]) for row in rows] == [("x", folder.container.url("k"), 3)]
    assert rejects == []

    rows, rejects = replayed(folder, schema=ddl.format("int"), **kind)
    assert rows == []
    assert [r.id for r in rejects] == [r.id for r in before]
    assert not rejects[0].again


def test_uneven_records_and_lines_that_are_no_text_fail_again_as_themselves(folder: ObjectFolder):
    folder.put("k", b"a,b\n1,2,3\n")
    folder.rows(schema="a bigint", format="csv")
    rows, rejects = replayed(folder, schema="a bigint", format="csv")
    assert (rows, [r.id for r in rejects]) == ([], [folder.rejects[0].id])
    folder.put("k", b"x\n\xff\n")
    folder.rows(format="text")
    rows, rejects = replayed(folder, format="text")
    assert (rows, [r.id for r in rejects]) == ([], [folder.rejects[0].id])


def test_whole_objects_are_read_as_they_are_now(folder: ObjectFolder):
    for key in ("mended", "broken", "gone"):
        folder.put(key, b"oops")
    folder.tries = 9
    assert folder.rows(schema="a bigint") == []
    before = {r.part: r.id for r in folder.rejects}
    folder.put("mended", b'{"a": 1}\n{"a": "x"}\n{"a": 3}\n')
    (folder.container.folder / "gone").unlink()

    rows, rejects = replayed(folder, schema="a bigint")
    assert [(row["a"], row["n"]) for row in rows] == [(1, 1), (3, 3)]
    by_row = {(r.location["object"].rpartition("/")[2], r.location.get("row")): r for r in rejects}
    assert set(by_row) == {("broken", None), ("gone", None), ("mended", 2)}
    assert by_row["broken", None].id == before["broken"]
    assert by_row["gone", None].id == before["gone"]
    assert by_row["gone", None].reason == "the object was deleted"
    assert not any(r.part or r.again for r in rejects)


def parquet(**columns: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, row_group_size=1000, use_dictionary=False)
    return out.getvalue()


def test_rows_of_parquet_stay_rejects_until_their_object_changes(folder: ObjectFolder):
    columns = {"t": (0, "timestamp_ntz")}
    folder.put("x", parquet(t=pa.array([1000, 1001], pa.timestamp("ns"))))
    assert len(folder.rows(columns, format="parquet")) == 1
    rows, rejects = replayed(folder, columns, format="parquet")
    assert (rows, [r.id for r in rejects]) == ([], [folder.rejects[0].id])
    (folder.container.folder / "x").write_bytes(parquet(t=pa.array([5], pa.timestamp("us"))))
    assert replayed(folder, columns, format="parquet") == ([], [])
    (folder.container.folder / "x").unlink()
    assert "deleted" in replayed(folder, columns, format="parquet")[1][0].reason


def test_a_row_group_is_read_again(folder: ObjectFolder):
    columns = {"a": (0, "bigint")}
    content = parquet(a=range(5000))
    at = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(3).column(0).data_page_offset + 100
    folder.put("x", content[:at] + b"\x55" * 300 + content[at + 300 :])
    splits = folder.splits(columns, format="parquet", split_bytes=5_000)
    assert len(folder.read(splits)) == 4000
    assert replayed(folder, columns, format="parquet")[1][0].id == folder.rejects[0].id
    folder.put("x", content)
    etag = folder.container.stat("x").etag
    folder.rejects = [
        Reject("things", r.location, r.reason, r.payload, {**r.more, "etag": etag}) for r in folder.rejects
    ]
    rows, rejects = replayed(folder, columns, format="parquet")
    assert [(row["a"], row["n"]) for row in rows] == [(n, n + 1) for n in range(3000, 4000)]
    assert rejects == []


def test_nothing_to_replay_is_no_rows(folder: ObjectFolder):
    assert replayed(folder, schema="a bigint") == ([], [])
