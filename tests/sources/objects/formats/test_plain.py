"""Text, binary and compressed objects, and objects that cannot be had at all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import RunError, ValueNotKept
from headwater.sources.objects.formats.plain import TextObjects
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.object_folder import ObjectFolder

LINES = b"".join(b'{"a": %d}\n' % number for number in range(1000))


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


@pytest.fixture(params=["file", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectFolder:
    """In this thread, and with requests in many."""
    return ObjectFolder(tmp_path, request.param)


@given(st.lists(st.text("a\nb\r\x0bé", max_size=12), max_size=5))
def test_text_is_what_splitting_at_newlines_gives(texts: list[str]):
    decoded = TextObjects(pa.schema([("value", pa.string())])).decode([text.encode() for text in texts])
    expected = []
    for text in texts:
        lines = text.replace("\r\n", "\n").split("\n")
        expected += lines[:-1] if lines[-1] == "" else lines
    assert decoded.parts[0].rows.column(0).to_pylist() == expected


def test_binary_is_a_row_per_object(folder: ObjectFolder):
    packed = gzip.compress(b"whole")
    for key, content in {"a": b"\x00\xff", "b": b"", "c.gz": packed}.items():
        folder.put(key, content)
    assert [row["value"] for row in folder.rows(format="binary")] == [b"\x00\xff", b"", b"whole"]
    assert folder.rows(format="binary", compression="none")[2]["value"] == packed


def test_compressed_objects_by_their_ending_or_by_setting(folder: ObjectFolder):
    halves = LINES[:5000], LINES[5000:]
    folder.put("1.json.gz", gzip.compress(LINES))
    folder.put("2.json.gz", gzip.compress(halves[0]) + gzip.compress(halves[1]))
    folder.put("3.json.ZST", zstd(LINES))
    folder.put("4.json.zst", zstd(halves[0]) + zstd(halves[1]))
    folder.put("5.json.gz", b"")
    rows = folder.rows(schema="a bigint", metadata=["url", "row"])
    assert folder.rejects == []
    assert [(row["a"], row["object_row"]) for row in rows] == [(n, n + 1) for n in range(1000)] * 4
    folder.put("1.json.gz", zstd(LINES))
    for key in ("2.json.gz", "5.json.gz"):
        folder.put(key, zstd(b""))
    assert len(folder.rows(schema="a bigint", compression="zstd")) == 3000


def test_large_objects_pass_through_files(folder: ObjectFolder):
    folder.tuning = Tuning(memory_bytes=1000)
    folder.put("a.gz", gzip.compress(LINES))
    folder.put("b", LINES)
    folder.put("c.gz", gzip.compress(LINES)[:-5])
    rows = folder.rows(schema="a bigint")
    assert [row["a"] for row in rows] == [*range(1000)] * 2
    assert set(folder.reasons()) == {("c.gz", None)}


def test_objects_that_are_gone_or_changed_come_again_and_bring_no_row(folder: ObjectFolder):
    for key in "abc":
        folder.put(key, b'{"a": 1}')
    splits = folder.splits(schema="a bigint", tries=1)
    (folder.container.folder / "a").unlink()
    (folder.container.folder / "b").write_bytes(b'{"a": 2}')
    assert len(folder.read(splits)) == 1
    gone, changed = folder.rejects
    assert gone.reason.startswith("deleted since it was listed")
    assert changed.reason.startswith("changed since it was listed")
    assert gone.again
    assert changed.again


def test_an_object_is_tried_as_often_as_the_settings_say_then_kept_as_a_reject(folder: ObjectFolder):
    folder.put("a", b"oops")
    values = []
    for folder.tries in range(3):
        folder.rows(schema="a bigint", tries=3)
        values.append((folder.rejects[0].again, folder.rejects[0].more["tries"]))
    assert values == [(True, 0), (True, 1), (False, 2)]
    reject = folder.rejects[0]
    assert dict(reject.location) == {"object": folder.container.url("a"), "etag": reject.more["etag"]}
    assert reject.more["key"] == "a"
    assert reject.more["size"] == 4


def test_without_a_place_for_rejects_reading_stops_with_the_same_words(folder: ObjectFolder):
    folder.put("a", b"oops")
    with pytest.raises(RunError, match="a: no JSON"):
        list(folder.splits(schema="a bigint")[0].read())
    folder.put("a", b'{"a": 1}\n{"a": "x"}')
    with pytest.raises(ValueNotKept, match="a, row 2: a: expected a number"):
        list(folder.splits(schema="a bigint")[0].read())
