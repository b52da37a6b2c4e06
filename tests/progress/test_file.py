"""The file store: names, torn files, crashes in the middle of a write."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import multiprocessing
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import StoreDamaged, StoreUnreachable
from headwater.model.position.marks import ColumnMark
from headwater.model.progress import HistoryEntry, Progress
from headwater.model.types import CursorType
from headwater.progress.file import FileProgress, file_stem
from headwater.progress.record_store import wall_clock
from tests.support.wait import wait_until

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=500)


def test_names_a_slash_b_and_a_colon_b_do_not_share_a_file(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a/b", 1)
    advance(store, "a:b", 2)
    assert (value(store, "a/b"), value(store, "a:b")) == (1, 2)
    assert {path.name for path in tmp_path.glob("*.json")} == {"a%2fb.json", "a%3ab.json"}


@given(TEXTS, TEXTS)
def test_different_names_have_different_files_on_every_file_system(a: str, b: str) -> None:
    assert (file_stem(a) == file_stem(b)) == (a == b)
    stem = file_stem(a)
    assert stem.isascii()
    assert stem == stem.lower()
    assert not set(stem) & set('/\\:.*?"<>| ')
    assert len(stem) <= 200


@pytest.mark.parametrize("content", ["empty", "garbage", "null", "list"])
def test_a_torn_state_file_is_an_error_and_not_the_absence_of_a_mark(tmp_path: Path, content: str) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    data = {"empty": b"", "garbage": b"\xff\x00", "null": b"null", "list": b"[]"}[content]
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"a\.json.*\n.*backup"):
        store.load("a")
    with pytest.raises(StoreDamaged):
        store.acquire("a", "me", 30)
    assert (tmp_path / "a.json").read_bytes() == data


def test_a_state_file_cut_anywhere_is_damage(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    path = tmp_path / "a.json"
    content = path.read_bytes()
    for length in range(len(content.rstrip())):
        path.write_bytes(content[:length])
        with pytest.raises(StoreDamaged):
            store.load("a")


def test_an_edited_state_file_is_damage(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 123456)
    path = tmp_path / "a.json"
    path.write_text(path.read_text().replace("123456", "999999"))
    with pytest.raises(StoreDamaged, match="checksum"):
        store.load("a")


def test_a_state_file_under_another_name_is_damage(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    shutil.copy(tmp_path / "a.json", tmp_path / "b.json")
    with pytest.raises(StoreDamaged, match="belongs to 'a'"):
        store.load("b")


def test_a_state_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    content = json.loads((tmp_path / "a.json").read_text())
    content["body"]["format"] = 2
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(StoreDamaged, match="newer Headwater"):
        store.load("a")


def test_a_lost_state_file_is_noticed_by_its_history(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    (tmp_path / "a.json").unlink()
    with pytest.raises(StoreDamaged, match="is gone"):
        store.load("a")


def test_the_torn_last_line_of_a_crash_is_not_history(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    with (tmp_path / "a.history").open("ab") as file:
        file.write(b'0123456789abcdef {"entry": {"at": "20')
    assert [entry.end for entry in store.history("a", 10)] == ["seq = 1"]
    advance(store, "a", 2)
    assert [entry.end for entry in store.history("a", 10)] == ["seq = 2", "seq = 1"]


@pytest.mark.parametrize("harm", ["cut", "edited", "gone"])
def test_history_that_was_written_and_is_not_there_is_damage(tmp_path: Path, harm: str) -> None:
    store = FileProgress(tmp_path)
    advance(store, "a", 1)
    path = tmp_path / "a.history"
    match harm:
        case "cut":
            path.write_bytes(path.read_bytes()[:-5])
        case "edited":
            path.write_bytes(path.read_bytes().replace(b"seq = 1", b"seq = 9"))
        case _:
            path.unlink()
    with pytest.raises(StoreDamaged, match="history"):
        store.history("a", 10)
    if harm != "edited":
        with pytest.raises(StoreDamaged, match="history"):
            advance(store, "a", 2)
    assert value(store, "a") == 1


def test_long_histories_are_read_from_their_end(tmp_path: Path) -> None:
    store = FileProgress(tmp_path)
    lease, progress = store.acquire("a", "me", 300), store.load("a")
    for number in range(40):
        progress = store.swap(lease, progress, progress, entry(number, error="x" * 10_000))
    for limit in (1, 6, 7, 39, 40, 41):
        entries = store.history("a", limit)
        assert [entry.rows for entry in entries] == list(range(39, -1, -1))[:limit]


def test_a_process_killed_in_the_middle_of_writes_leaves_state_and_history_in_step(tmp_path: Path) -> None:
    chance, forking = random.Random(7), multiprocessing.get_context("fork")
    for hour in range(15):
        before = value(FileProgress(tmp_path), "a")
        worker = forking.Process(target=advance_for_ever, args=(tmp_path, hour), daemon=True)
        worker.start()
        wait_until(lambda before=before: value(FileProgress(tmp_path), "a") > before)
        worker.join(chance.uniform(0, 0.02))
        worker.kill()
        worker.join()
        store = FileProgress(tmp_path)
        reached = value(store, "a")
        assert [entry.end for entry in store.history("a", 10_000)] == [f"seq = {n}" for n in range(reached, 0, -1)]


def advance_for_ever(folder: Path, hour: int) -> None:
    # Each process lives an hour after the one before it, so it need not wait for that one's lease.
    store = FileProgress(folder, lambda: wall_clock() + dt.timedelta(hours=hour))
    while True:
        advance(store, "a", value(store, "a") + 1)


def test_a_folder_that_vanishes_is_an_outage_and_not_a_first_run(tmp_path: Path) -> None:
    store = FileProgress(tmp_path / "mounted")
    advance(store, "a", 1)
    (tmp_path / "mounted").rename(tmp_path / "unmounted")
    with pytest.raises(StoreUnreachable, match="folder is gone"):
        store.load("a")
    with pytest.raises(StoreUnreachable):
        store.acquire("a", "me", 30)
    (tmp_path / "unmounted").rename(tmp_path / "mounted")
    assert value(store, "a") == 1


def test_a_folder_that_cannot_be_made_is_an_outage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnreachable, match="check that the folder"):
        FileProgress(tmp_path / "file" / "folder").load("a")


def test_a_missing_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    advance(FileProgress(tmp_path / "x" / "y"), "a", 1)
    assert value(FileProgress(tmp_path / "x" / "y"), "a") == 1


def test_a_lock_that_nobody_gives_back_is_an_outage(tmp_path: Path) -> None:
    advance(FileProgress(tmp_path), "a", 1)
    with (tmp_path / "a.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = FileProgress(tmp_path, patience_seconds=0.05)
        with pytest.raises(StoreUnreachable, match="locked by another process"):
            store.acquire("a", "me", 30)
        assert value(store, "a") == 1
        assert store.acquire("b", "me", 30).epoch == 1


def advance(store: FileProgress, pipeline: str, to: int) -> Progress:
    lease = store.acquire(pipeline, "me", 30)
    progress = store.load(pipeline)
    stored = store.swap(lease, progress, progress.advanced(ColumnMark("seq", CursorType.INTEGER, to)), entry(to))
    store.release(lease)
    return stored


def value(store: FileProgress, pipeline: str) -> int:
    mark = store.load(pipeline).mark
    return mark.value if isinstance(mark, ColumnMark) else 0


def entry(number: int, error: str = "") -> HistoryEntry:
    return HistoryEntry("landed", "run", wall_clock(), "me", 1, "", f"seq = {number}", rows=number, error=error)
