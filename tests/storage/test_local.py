"""A folder as a container: what is listed, in which order, and which version is read."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError, SourceUnreachable
from headwater.storage.container import LISTING_COLUMNS, ObjectChanged, ObjectGone, ObjectRefused, Selection
from headwater.storage.local import Folder, walk
from headwater.storage.open import open_container
from tests.storage.containers import by_bytes, keys, listed, opened_folder

_NAME = st.text(st.sampled_from("ab-.0/é\U0001f600\uffff A"), min_size=1, max_size=12)


def _write(folder: Path, *names: str, content: bytes = b"{}\n") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_files_are_listed_with_their_columns(tmp_path: Path) -> None:
    _write(tmp_path, "b.json", "in/a.json", "empty.json")
    (tmp_path / "empty.json").write_bytes(b"")
    os.utime(tmp_path / "b.json", ns=(1, 1_700_000_000_123_456_789))
    page = next(opened_folder(tmp_path).listing())
    assert {field.name: str(field.type) for field in page.schema} == LISTING_COLUMNS
    objects = listed(opened_folder(tmp_path))
    assert list(objects) == ["b.json", "empty.json", "in/a.json"]
    assert [version.size for version in objects.values()] == [3, 0, 3]
    assert objects["b.json"].modified == 1_700_000_000_123_456


@given(names=st.sets(_NAME, max_size=12))
@settings(max_examples=60)
def test_keys_come_in_the_order_of_their_bytes(tmp_path_factory: pytest.TempPathFactory, names: set[str]) -> None:
    folder = tmp_path_factory.mktemp("order")
    written = set()
    for name in names:
        parts = [part for part in name.split("/") if part not in ("", ".", "..")]
        try:
            _write(folder, "/".join(parts) or "x")
        except OSError:  # a file where another name wants a folder
            continue
        written.add("/".join(parts) or "x")
    everything = keys(opened_folder(folder, ignore=[]))
    assert everything == by_bytes(list(written))
    for key in everything:
        assert keys(opened_folder(folder, ignore=[]), key) == [k for k in everything if k.encode() > key.encode()]


def test_a_folder_sorts_behind_names_that_continue_with_less_than_a_slash(tmp_path: Path) -> None:
    _write(tmp_path, "a/x", "a-b", "a.json", "a0", "a b")
    assert keys(opened_folder(tmp_path)) == ["a b", "a-b", "a.json", "a/x", "a0"]


def test_pages_are_cut_across_folders(tmp_path: Path) -> None:
    names = [f"{n % 7}/{n % 3}/{n:04}.json" for n in range(250)]
    _write(tmp_path, *names)
    folder = dataclasses.replace(opened_folder(tmp_path), page_size=40)
    pages = list(folder.listing())
    assert [page.num_rows for page in pages] == [40] * 6 + [10]
    assert pa.Table.from_batches(pages)["key"].to_pylist() == by_bytes(names)


def test_a_file_that_was_overwritten_has_another_etag(tmp_path: Path) -> None:
    _write(tmp_path, "a", content=b"old")
    before = listed(opened_folder(tmp_path))["a"]
    moment = (tmp_path / "a").stat().st_mtime_ns
    (tmp_path / "a").write_bytes(b"new")
    os.utime(tmp_path / "a", ns=(moment, moment + 1))  # in the same second, of the same size
    after = listed(opened_folder(tmp_path))["a"]
    assert after.etag != before.etag
    assert after.size == before.size
    with pytest.raises(ObjectChanged, match="has changed"):
        opened_folder(tmp_path).fetch(before)
    assert opened_folder(tmp_path).fetch(after) == b"new"


def test_a_file_that_another_was_renamed_over_has_another_etag(tmp_path: Path) -> None:
    _write(tmp_path, "a", content=b"old")
    _write(tmp_path, "b", content=b"new")
    for name in "ab":
        os.utime(tmp_path / name, ns=(5, 5))
    before = listed(opened_folder(tmp_path))["a"]
    (tmp_path / "b").rename(tmp_path / "a")
    after = listed(opened_folder(tmp_path))
    assert list(after) == ["a"]
    assert (after["a"].modified, after["a"].size) == (before.modified, before.size)
    assert after["a"].etag != before.etag
    with pytest.raises(ObjectChanged):
        opened_folder(tmp_path).fetch(before)


def test_a_deleted_file_is_gone(tmp_path: Path) -> None:
    _write(tmp_path, "in/a")
    before = listed(opened_folder(tmp_path))["in/a"]
    (tmp_path / "in/a").unlink()
    folder = opened_folder(tmp_path)
    assert (keys(folder), folder.stat("in/a")) == ([], None)
    with pytest.raises(ObjectGone, match="was deleted"):
        folder.fetch(before)


def test_a_file_that_became_a_folder_is_gone(tmp_path: Path) -> None:
    _write(tmp_path, "a")
    before = listed(opened_folder(tmp_path))["a"]
    (tmp_path / "a").unlink()
    (tmp_path / "a").mkdir()
    with pytest.raises(ObjectGone):
        opened_folder(tmp_path).fetch(before)


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_read_is_told() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        _write(path, "a", "closed/b")
        (path / "a").chmod(0)
        folder = opened_folder(path, pattern="*")
        with _as_nobody(), pytest.raises(ObjectRefused, match="/a: Permission denied"):
            folder.fetch(listed(folder)["a"])
        (path / "closed").chmod(0)
        with _as_nobody(), pytest.raises(SourceUnreachable, match="closed/: Permission denied") as caught:
            keys(opened_folder(path))
        assert "grant read permission" in caught.value.hint
        (path / "closed").chmod(0o755)


def test_parts_of_a_file_are_read(tmp_path: Path) -> None:
    _write(tmp_path, "a", content=b"0123456789")
    folder = opened_folder(tmp_path)
    version = listed(folder)["a"]
    assert folder.fetch(version) == b"0123456789"
    parts = [folder.fetch_range(version, start, end) for start, end in ((0, 4), (4, 100), (10, 20), (5, 5))]
    assert parts == [b"0123", b"456789", b"", b""]


def test_files_that_vanish_while_they_are_listed_are_left_out(tmp_path: Path) -> None:
    _write(tmp_path, *(f"{n}/{n}" for n in range(10)), "a", "b", "c")
    selection = Selection("", "**", (), recursive=True, min_age=0)
    keys_read = []
    for key, _ in walk(str(tmp_path), selection, ""):
        keys_read.append(key)
        if key == "3/3":
            for name in ("5/5", "a", "c"):
                (tmp_path / name).unlink()
            (tmp_path / "5").rmdir()
    assert keys_read == ["0/0", "1/1", "2/2", "3/3", "4/4", "6/6", "7/7", "8/8", "9/9", "b"]


def test_links_to_files_and_folders_are_followed_and_never_in_circles(tmp_path: Path) -> None:
    _write(tmp_path, "other/real.json", content=b"12345")
    _write(tmp_path, "seen/a")
    seen = tmp_path / "seen"
    (seen / "file").symlink_to(tmp_path / "other/real.json")
    (seen / "folder").symlink_to(tmp_path / "other")
    (seen / "up").symlink_to(seen)
    (tmp_path / "other/back").symlink_to(seen)
    (seen / "itself").symlink_to(seen / "itself")
    (seen / "nowhere").symlink_to(tmp_path / "nothing")
    folder = opened_folder(seen)
    objects = listed(folder)
    assert list(objects) == ["a", "file", "folder/real.json"]
    assert folder.fetch(objects["file"]) == b"12345"


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "a")
    os.mkfifo(tmp_path / "pipe")
    assert keys(opened_folder(tmp_path)) == ["a"]
    assert opened_folder(tmp_path).stat("pipe") is None


def test_a_name_that_is_no_text_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write(tmp_path, "a")
    (tmp_path / os.fsdecode(b"bad\xff.json")).write_bytes(b"x")
    assert keys(opened_folder(tmp_path)) == ["a"]
    assert "name is not UTF-8" in caplog.text
    assert r"bad\udcff.json" in caplog.text


@pytest.mark.parametrize(
    "name",
    ["a b", "100%41", "1+1", "#x", "a?b=c", 'it\'s "q"', "[x]*{a}", "日本", "tab\tline\n", "x" * 255, "back\\slash"],
)
def test_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    _write(tmp_path, f"in {name[:100]}/{name}", content=name.encode())
    folder = opened_folder(tmp_path)
    (version,) = listed(folder).values()
    assert version.key == f"in {name[:100]}/{name}"
    assert folder.fetch(version) == name.encode()
    assert folder.stat(version.key) == version
    assert folder.url(version.key) == f"file://{tmp_path}/{version.key}"


def test_young_files_wait(tmp_path: Path) -> None:
    _write(tmp_path, "old", "new")
    hour_ago = time.time() - 3600
    os.utime(tmp_path / "old", (hour_ago, hour_ago))
    folder = opened_folder(tmp_path, min_age="10m")
    assert keys(folder) == ["old"]
    assert folder.stat("new") is None
    assert folder.stat("old") == listed(folder)["old"]


def test_look_obeys_the_patterns_and_stays_within_the_folder(tmp_path: Path) -> None:
    _write(tmp_path, "secret.json", "in/a.json", "in/_tmp/b.json", "in/c.csv")
    folder = opened_folder(tmp_path / "in", pattern="**/*.json")
    assert folder.stat("a.json") is not None
    for key in ("_tmp/b.json", "c.csv", "nothing.json", "../secret.json", "./a.json", "/a.json", "x/../a.json", "_tmp"):
        assert folder.stat(key) is None, key


def test_folders_that_hold_nothing_selected_are_not_looked_into(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "a", "2024/x", "_temporary/0/part", "in/.git/x", "in/b", "in/deep/c")
    for name in ("_temporary", "in/.git", "in/deep", "2024"):
        (tmp_path / name / os.fsdecode(b"\xff")).write_bytes(b"")  # is told of by whoever looks
    assert keys(opened_folder(tmp_path, pattern="{a,in/*}")) == ["a", "in/b"]
    assert keys(opened_folder(tmp_path, pattern="in/?")) == ["in/b"]
    assert keys(opened_folder(tmp_path, recursive=False)) == ["a"]
    messages = [record.getMessage() for record in caplog.records]
    assert [text for text in messages if "2024" not in text] == []
    assert len(messages) == 1  # the braces may mean any folder of the first level


def test_a_missing_folder_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable, match="No such file or directory") as caught:
        keys(opened_folder(tmp_path / "nothing"))
    assert str(tmp_path / "nothing") in str(caught.value)
    _write(tmp_path, "file.json")
    with pytest.raises(InputError, match="is a file"):
        keys(opened_folder(tmp_path / "file.json"))


def test_a_relative_url_lies_beside_the_pipeline(tmp_path: Path) -> None:
    _write(tmp_path, "data/a")
    container = open_container(ObjectsSourceSettings(url="data/"), tmp_path, S3Settings())
    assert isinstance(container, Folder)
    assert (container.address, keys(container)) == (f"file://{tmp_path}/data/", ["a"])
    assert pickle.loads(pickle.dumps(container)) == container  # noqa: S301 - our own
    by_url = open_container(ObjectsSourceSettings(url=f"file://{tmp_path}/data"), Path("/"), S3Settings())
    assert by_url == container
