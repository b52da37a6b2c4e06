"""The JSON of stored values is that of 0.1.0, byte for byte: no mark needs migrating, and no window gets another id."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.model.position.marks import mark_from_json
from headwater.model.position.window import Window
from headwater.model.progress import HistoryEntry, Intent, PausedStream, Progress
from tests.upgrade.archive import unpack

RECORDED = Path(__file__).parent / "recorded_0_1_0"
TABLE = {
    "oid": 16384,
    "copied": "0/16B3748",
    "columns": [["id", "bigint"], ["at", "timestamp"], ["at__date", "date"]],
    "shape": {"id": [1, "20/-1"], "at": [2, "1114/-1"]},
    "key": ["id"],
    "published": "16390/",
}
STAGES = {
    "copied_to": 128,
    "leaves": [16400, 16410],
    "landed": "0/16B3700",
    "stale": "column at got another type",
}
LSN = {
    "kind": "lsn",
    "version": 1,
    "lsn": "1/A0",
    "cluster": "7/app",
    "timeline": 1,
    "slot": "s",
    "turn": 2,
    "era": 0,
    "tables": {"public.a": TABLE, "public.b": {**TABLE, **STAGES}},
}
OBJECTS = {"kind": "objects", "version": 1, "generation": 3, "count": 2, "turn": 0, "reached": 0}
OFFSETS = {"kind": "offsets", "version": 1, "topics": {"t": {"0": 5, "10": 7}}, "ids": {"t": "x"}}
COLUMN = {
    "kind": "column",
    "version": 1,
    "column": "at",
    "type": "timestamptz",
    "value": "2026-03-02T12:20:00.000000+00:00",
}
SEEN = {"cluster": "7/app", "horizon": 12, "pending": [10, 11], "bounds": {"low": "2026-01-01"}}
WRITTEN = [
    {**COLUMN, "value": None},
    COLUMN,
    {**COLUMN, "snapshot": SEEN},
    {**COLUMN, "edge": {"since": COLUMN["value"], "rows": ["a1", "b2"]}},
    {**COLUMN, "snapshot": {**SEEN, "pending": [], "bounds": {}}, "edge": {"since": None, "rows": []}},
    {"kind": "streams", "version": 1, "streams": {"public.a": COLUMN, "public.b": {**COLUMN, "snapshot": SEEN}}},
    {"kind": "streams", "version": 1, "streams": {}},
    OFFSETS,
    {**OFFSETS, "topics": {}, "ids": {}},
    {**OFFSETS, "columns": {"t": {"b": [1, "string"], "id": [0, "bigint"]}}},
    {**OFFSETS, "columns": {"t": {"b": [1, "string"], "id": [0, "bigint"]}, "t key": {"b": [1, "key"], "id": [0, "key"]}}},
    {**OFFSETS, "columns": {"t key": {"id": [0, "key"]}}},
    OBJECTS,
    {**OBJECTS, "columns": {"id": [0, "bigint"], "b": [3, "string"]}, "feed": {"file": "a", "at": 5}},
    {**OBJECTS, "columns": {"id": [0, "bigint"], "b": [1, "string"], " key id": [0, "key"]}},
    {**LSN, "tables": {}},
    LSN,
    {**LSN, "commit": {"lsn": "1/9F", "transaction": 77, "time": 1_700_000_000_000_000}, "cut": "1/9F", "labels": ["month-end"]},
]  # fmt: skip


def again_of(read: Callable[[Any], Any], data: Any) -> str:
    return json.dumps(read(json.loads(json.dumps(data))).to_json())


@pytest.mark.parametrize("data", WRITTEN, ids=lambda data: data["kind"])
def test_a_mark_of_every_kind_keeps_its_text_and_the_ids_of_its_windows(data: dict[str, Any]) -> None:
    assert again_of(mark_from_json, data) == json.dumps(data)
    for window in ({"start": None, "end": data}, {"start": data, "end": data, "part": "rejects"}):
        assert again_of(Window.from_json, window) == json.dumps(window)
        assert Window.from_json(window).id == id_of(window)


@pytest.mark.parametrize("archive", sorted(RECORDED.glob("*.tar.xz")), ids=lambda path: path.name.split(".")[0])
def test_what_0_1_0_stored_keeps_its_text_and_its_window_ids(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path)
    recorded = tmp_path / "recorded.json"
    if recorded.exists():  # the archives of servers have none
        known = json.loads(recorded.read_text())
        assert known["window"] in {Window.from_json(window).id for window in windows_in(known["progress"])}
    for kind, data in stored(tmp_path):
        assert again_of(READ[kind], data) == json.dumps(data)
        for window in windows_in(data):
            assert Window.from_json(window).id == id_of(window)


READ: dict[str, Callable[[Any], Any]] = {
    "progress": Progress.from_json,
    "mark": mark_from_json,
    "intent": Intent.from_json,
    "waiting": PausedStream.from_json,
    "entry": HistoryEntry.from_json,
}


def stored(folder: Path) -> Iterator[tuple[str, Any]]:
    """Everything that progress stores below the folder hold; `recorded.json` has what was in a server's store."""
    for path in folder.glob("recorded.json"):
        yield "progress", json.loads(path.read_text())["progress"]
    for path in folder.glob("**/progress/*.json"):
        yield "progress", json.loads(path.read_text())["body"]["progress"]
    for path in folder.glob("**/progress.db"):
        with sqlite3.connect(path) as database:
            for mark, intent, waiting in database.execute("SELECT mark, intent, waiting FROM headwater_progress"):
                yield from ((kind, json.loads(text)) for kind, text in (("mark", mark), ("intent", intent)) if text)
                yield from (("waiting", one) for one in json.loads(waiting or "[]"))
            for (entry,) in database.execute("SELECT entry FROM headwater_history"):
                yield "entry", json.loads(entry)
        database.close()


def windows_in(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        if {"start", "end"} <= data.keys() and isinstance(data["end"], dict):
            yield data
        for value in data.values():
            yield from windows_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from windows_in(value)


def id_of(window: dict[str, Any]) -> str:
    """As 0.1.0 computed it, from the text alone."""
    text = json.dumps(window, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
