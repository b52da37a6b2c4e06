"""Progress in a folder: one JSON file per pipeline, replaced in one step, and its history beside it.

For one machine, or a network file system whose locks work. A process that is suspended during a write
blocks the others for a few seconds only, then they report the store as unreachable.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import json
import os
import random
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.model.errors import StoreDamaged, StoreUnreachable
from headwater.model.position.marks import Json
from headwater.model.progress import HistoryEntry, Progress
from headwater.progress.record_store import RESTORE, Clock, Decision, Record, RecordStore, checked_name, wall_clock

_FORMAT = 1


@dataclass(frozen=True)
class _State:
    """The content of a pipeline's file: its record, and how many bytes of its history count."""

    record: Record
    history_bytes: int = 0


class FileProgress(RecordStore):
    """`NAME.json` holds the state, `NAME.history` the record of cycles, `NAME.lock` keeps writers apart."""

    def __init__(self, folder: Path, clock: Clock = wall_clock, patience_seconds: float = 10.0) -> None:
        self._folder = folder.absolute()
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._prepared = False

    @property
    def address(self) -> str:
        return f"file://{self._folder}"

    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        with self._reachable():
            # Bytes that the state counts never change, so no lock is needed to read them.
            state = self._state(checked_name(pipeline))
            with self._reading(f"the history of {pipeline!r}"):
                try:
                    return newest_entries(self._path(pipeline, "history"), state.history_bytes, limit)
                except FileNotFoundError as error:
                    raise StoreDamaged("its file is gone", hint=RESTORE) from error

    def pipelines(self) -> Sequence[str]:
        with self._reachable():
            self._prepare()
            states = [self._parse(path.read_bytes(), path.name) for path in sorted(self._folder.glob("*.json"))]
        return sorted(state.record.progress.pipeline for state in states if state.record.progress.version > 0)

    def close(self) -> None:
        self._prepared = False

    def _read(self, pipeline: str) -> Record:
        with self._reachable():
            return self._state(pipeline).record

    def _change(self, pipeline: str, decide: Decision, entry: HistoryEntry | None) -> Record:
        with self._reachable(), self._lock(pipeline):
            state = self._state(pipeline)
            record = decide(state.record, self._clock())
            if record is state.record:
                return record
            length = state.history_bytes
            if entry is not None:
                with self._reading(f"the history of {pipeline!r}"):
                    length = append_entry(self._path(pipeline, "history"), length, record.progress.version, entry)
            # The one step that makes both count: until the rename the old state stands, with the old history.
            self._replace(pipeline, _State(record, length))
            return record

    def _state(self, pipeline: str) -> _State:
        self._prepare()
        path, history = self._path(pipeline, "json"), self._path(pipeline, "history")
        data = _read_or_none(path)
        if data is None and history.exists():
            data = _read_or_none(path)  # another process may have written both in the meantime
            if data is None:
                raise StoreDamaged(f"{self.address}: {path.name} is gone, but {history.name} exists", hint=RESTORE)
        if data is None:
            if not self._folder.is_dir():
                raise StoreUnreachable(f"{self.address}: the folder is gone", hint="mount it again, or restore it")
            return _State(Record(Progress(pipeline)))
        state = self._parse(data, path.name)
        if state.record.progress.pipeline != pipeline:
            owner = state.record.progress.pipeline
            raise StoreDamaged(f"{self.address}: {path.name} belongs to {owner!r}, not {pipeline!r}", hint=RESTORE)
        return state

    def _parse(self, data: bytes, name: str) -> _State:
        with self._reading(name):
            content = json.loads(data)
            body = content["body"]
            if body["format"] != _FORMAT:
                raise StoreDamaged(
                    f"format {body['format']!r} was written by a newer Headwater", hint="run that version, or newer"
                )
            if content["checksum"] != _checksum(body):
                raise StoreDamaged("the content does not match its checksum: it was edited or truncated", hint=RESTORE)
            lease = body["lease"]
            record = Record(
                Progress.from_json(body["progress"]),
                lease["owner"] if lease else None,
                dt.datetime.fromisoformat(lease["expires_at"]) if lease else None,
            )
            return _State(record, body["history_bytes"])

    def _replace(self, pipeline: str, state: _State) -> None:
        record = state.record
        lease = {"owner": record.owner, "expires_at": record.expires_at.isoformat()} if record.expires_at else None
        body = {
            "format": _FORMAT,
            "progress": record.progress.to_json(),
            "mark_text": str(record.progress.mark) if record.progress.mark else None,
            "lease": lease,
            "history_bytes": state.history_bytes,
        }
        path = self._path(pipeline, "json")
        temporary = self._path(pipeline, "new")  # one name is enough: we hold the lock
        with temporary.open("w", encoding="ascii") as file:
            json.dump({"checksum": _checksum(body), "body": body}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(self._folder)

    @contextlib.contextmanager
    def _lock(self, pipeline: str) -> Iterator[None]:
        self._prepare()
        path = self._path(pipeline, "lock")
        deadline = time.monotonic() + self._patience_seconds
        while True:
            with path.open("ab") as lock:
                self._wait_for(lock.fileno(), path, deadline)
                # The file may have been deleted during the wait: a lock on a deleted file protects nothing.
                if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                    yield
                    return

    def _wait_for(self, descriptor: int, path: Path, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreUnreachable(
                        f"{self.address}: {path.name} has been locked by another process for {self._patience_seconds:.0f} s",
                        hint=f"a process hangs while it writes; find it with: fuser {path}",
                    ) from None
                time.sleep(random.uniform(0.0005, 0.004))  # noqa: S311 - spreads the waiters, nothing to guess

    def _prepare(self) -> None:
        """Make the folder at first use only: one that vanishes later is an outage, not a first run (W3)."""
        if not self._prepared:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._prepared = True

    def _path(self, pipeline: str, suffix: str) -> Path:
        return self._folder / f"{file_stem(pipeline)}.{suffix}"

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnreachable(
                f"{self.address}: {error.strerror or error} ({Path(error.filename or '').name or 'the folder'})",
                hint="check that the folder exists, is writable and not full",
            ) from error


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _checksum(body: dict[str, Json]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_BLOCK_BYTES = 64 * 1024


def append_entry(path: Path, length: int, version: int, entry: HistoryEntry) -> int:
    """Write the entry at `length`, durably; return the new length, which counts once the state has it."""
    line = _line(version, entry)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        if os.fstat(descriptor).st_size < length:
            raise StoreDamaged(f"{path.name} has fewer than the {length} bytes that were written to it")
        file.seek(length)
        file.truncate()
        file.write(line)
        file.flush()
        os.fsync(descriptor)
    return length + len(line)


def newest_entries(path: Path, length: int, limit: int) -> list[HistoryEntry]:
    """The last `limit` entries among the first `length` bytes, newest first."""
    if length == 0 or limit <= 0:
        return []
    lines = _last_lines(path, length, limit)
    return [_entry(line) for line in reversed(lines)]


def _line(version: int, entry: HistoryEntry) -> bytes:
    text = json.dumps({"version": version, "entry": entry.to_json()}, sort_keys=True)
    return f"{_digest(text.encode())} {text}\n".encode()


def _entry(line: bytes) -> HistoryEntry:
    digest, _, text = line.partition(b" ")
    if digest.decode("ascii", "replace") != _digest(text):
        raise StoreDamaged("a line of the history does not match its checksum")
    return HistoryEntry.from_json(json.loads(text)["entry"])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _last_lines(path: Path, length: int, limit: int) -> list[bytes]:
    size = _BLOCK_BYTES
    with path.open("rb") as file:
        while True:
            start = max(0, length - size)
            file.seek(start)
            data = file.read(length - start)
            if len(data) < length - start or not data.endswith(b"\n"):
                raise StoreDamaged(f"{path.name} does not hold the {length} bytes that were written to it")
            # The first piece may be the end of a longer line, unless it is the start of the file.
            lines = data.split(b"\n")[:-1]
            complete = lines if start == 0 else lines[1:]
            if start == 0 or len(complete) >= limit:
                return complete[-limit:]
            size *= 4


_PLAIN_BYTES = frozenset((string.ascii_lowercase + string.digits + "-_").encode())
_MAX_STEM_BYTES = 180  # bytes; leaves room for suffixes below the usual limit of 255
_PREFIX_BYTES = 100


def file_stem(pipeline: str) -> str:
    """A file name: lower-case letters, digits, `-` and `_` as they are, every other byte of the UTF-8 text as `%xx`.

    Capitals are escaped too, because some file systems take `a` and `A` for one name, and so are dots,
    slashes and everything that a file system might normalise. A stem that is too long is cut and made
    unique by a digest after `~`, a character that no other stem has.
    """
    data = pipeline.encode()
    stem = "".join(chr(byte) if byte in _PLAIN_BYTES else f"%{byte:02x}" for byte in data)
    if len(stem) <= _MAX_STEM_BYTES:
        return stem
    return f"{stem[:_PREFIX_BYTES]}~{hashlib.sha256(data).hexdigest()}"
