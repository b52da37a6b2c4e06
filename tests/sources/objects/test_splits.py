"""Windows cut into splits: each row once, however objects are put together or cut to pieces."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.errors import SourceUnreachable
from headwater.sinks.tasks import SMALL_WINDOW
from headwater.sources.objects.rows import group_objects
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b'{"a": %d}\n' % number for number in range(first, first + count))


def test_small_objects_share_splits_and_large_ones_are_cut(folder: ObjectFolder):
    for number in range(50):
        folder.put(f"s{number:02}", lines(10, number * 10))
    folder.put("large", lines(3000, 500))
    splits = folder.splits(schema="a bigint", split_bytes=10_000, metadata=["url"])
    assert [split.count for split in splits].count(1) == 4  # the large one's pieces
    assert 4 < len(splits) < 40
    rows = folder.read(splits)
    assert sorted(row["a"] for row in rows) == [*range(3500)]
    assert folder.read(splits) == rows
    assert {row["object_url"] for row in rows if row["a"] >= 500} == {folder.container.url("large")}


def test_a_window_of_no_objects_has_no_splits(folder: ObjectFolder):
    assert folder.splits(schema="a bigint") == ()


@pytest.mark.parametrize(
    ("key", "content", "more"),
    [
        ("x.gz", None, {}),
        ("array", b"[" + b",".join(b'{"a": %d}' % n for n in range(2000)) + b"]", {}),
        ("pretty", b"".join(b'{\n "a": %d\n}\n' % n for n in range(2000)), {}),
        ("numbered", lines(2000), {"metadata": ["row"]}),
        ("said", lines(2000), {"json_as": "document"}),
    ],
)
def test_what_cannot_be_cut_stays_whole(folder: ObjectFolder, key: str, content: bytes | None, more: dict):
    import gzip

    folder.put(key, gzip.compress(lines(2000), 1) if content is None else content)
    splits = folder.splits(schema="a bigint", split_bytes=1000, **more)
    assert len(splits) == 1
    assert [row["a"] for row in folder.read(splits)] == [*range(2000)]


texts = st.lists(st.sampled_from(["", "a", "bc", "x" * 30, "é", "last"]), max_size=30)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", "\r\n"]), st.integers(1, 40))
def test_the_pieces_of_an_object_hold_each_line_once(tmp_path: Path, lines: list, end: str, last: str, size: int):
    folder = ObjectFolder(tmp_path)
    folder.put("x", end.join(lines) + last)
    expected = folder.rows(format="text", split_bytes=1_000_000)
    assert folder.rows(format="text", split_bytes=size) == expected


def test_rejects_of_pieces_know_their_line_in_the_object(folder: ObjectFolder):
    folder.tuning = Tuning(range_bytes=1000)
    content = [b'{"a": %d}\n' % number for number in range(5000)]
    bad = (0, 1, 17, 1234, 4998, 4999)
    for number in bad:
        content[number] = b'{"a": "%d"}\n' % number
    content[0] = b'\xef\xbb\xbf{"a": 0}\n'
    folder.put("x", b"".join(content))
    rows = folder.rows(schema="a bigint", split_bytes=7_000)
    assert sorted(row["a"] for row in rows) == [n for n in range(5000) if n not in bad or n == 0]
    assert [(r.location["row"], r.payload) for r in folder.rejects] == [(n + 1, b'{"a": "%d"}' % n) for n in bad[1:]]


def test_a_line_longer_than_several_pieces_is_one_row(folder: ObjectFolder):
    folder.put("x", b'{"a": 1}\n{"a": 2, "b": "' + b"x" * 300_000 + b'"}\n{"a": 3}\n')
    rows = folder.rows(schema="a bigint, b string", split_bytes=1_000)
    assert [(row["a"], len(row["b"] or "")) for row in rows] == [(1, 0), (2, 300_000), (3, 0)]


def test_an_object_that_changes_while_its_pieces_are_read_stops_the_try_and_the_next_goes_on_without_it(
    folder: ObjectFolder,
):
    folder.put("x", lines(5000))
    folder.put("y", lines(5, 9000))
    splits = folder.splits(schema="a bigint", split_bytes=10_000)
    (folder.container.folder / "x").write_bytes(b"{}")
    with pytest.raises(SourceUnreachable, match="x changed while it was being read"):
        folder.read(splits)
    again = folder.splits(schema="a bigint", split_bytes=10_000)
    assert [row["a"] for row in folder.read(again)] == [*range(9000, 9005)]
    assert [(r.part, r.again) for r in folder.rejects] == [("x", True)]


def test_small_windows_are_known_to_be_small(folder: ObjectFolder):
    for number in range(20):
        folder.put(f"{number}", lines(100))
    assert sum(split.rows or SMALL_WINDOW for split in folder.splits(schema="a bigint")) < SMALL_WINDOW
    folder.put("large", lines(1_000_000))
    assert None in [split.rows for split in folder.splits(schema="a bigint")]


def test_splits_are_small_to_send_and_show_no_keys(folder: ObjectFolder):
    for number in range(2000):
        folder.put(f"some/long/folder/part-{number:05}.json", b"{}")
    (split,) = folder.splits(schema="a bigint")
    assert len(pickle.dumps(split)) < 100_000
    assert "part-00001" not in repr(split)


@given(st.lists(st.integers(0, 10_000_000), max_size=200), st.integers(1, 50_000_000), st.integers(1, 9))
def test_objects_put_together_are_all_there_in_their_order(sizes: list[int], split_bytes: int, cores: int):
    objects = pa.table({"size": pa.array(sizes, pa.int64())})
    groups = group_objects(objects, split_bytes, cores)
    assert [size for part in groups for size in part["size"].to_pylist()] == sizes
    assert all(len(part) for part in groups)
