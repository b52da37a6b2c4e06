"""The common part of the SQLite and PostgreSQL stores: connections, statements, and the mapping of rows to records."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from headwater.model.errors import HeadwaterError, StoreDamaged
from headwater.model.position.marks import Json, Mark
from headwater.model.progress import HistoryEntry, Lease, Progress
from headwater.progress.ledger import SqlLedger
from headwater.progress.migrations import Execute, Row
from headwater.progress.record_store import Decision, Record, RecordStore, checked_name


class Closeable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)

# Connections of parents. Python would close them if nothing held them here.
_INHERITED: list[object] = []


class OwnConnection(Generic[C]):
    """At most one connection, opened by this process."""

    def __init__(self) -> None:
        self._connection: C | None = None
        self._opened_by = 0

    def get(self) -> C | None:
        if self._connection is not None and self._opened_by != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        return self._connection

    def keep(self, connection: C) -> C:
        self.close()
        self._connection, self._opened_by = connection, os.getpid()
        return connection

    def close(self) -> None:
        connection = self.get()
        self._connection = None
        if connection is not None:
            connection.close()


T = TypeVar("T")

COLUMNS = (
    "version, epoch, CAST(mark AS text) AS mark, CAST(intent AS text) AS intent, CAST(waiting AS text) AS waiting, "
    "lease_owner, lease_expires_at"
)
_READ = f"SELECT {COLUMNS} FROM headwater_progress WHERE pipeline = :pipeline"  # noqa: S608 - constant
_ADD_EMPTY = "INSERT INTO headwater_progress (pipeline, version, epoch) VALUES (:pipeline, 0, 0) ON CONFLICT DO NOTHING"
_WRITE = """
UPDATE headwater_progress SET
    updated_at = CASE WHEN version = :version THEN updated_at ELSE :now END,
    version = :version, epoch = :epoch, mark = :mark, mark_text = :mark_text, intent = :intent, waiting = :waiting,
    lease_owner = :lease_owner, lease_expires_at = :lease_expires_at
WHERE pipeline = :pipeline"""
_ADD_ENTRY = """
INSERT INTO headwater_history (pipeline, version, at, kind, who, entry)
VALUES (:pipeline, :version, :at, :kind, :who, :entry)"""
_HISTORY = """
SELECT CAST(entry AS text) FROM headwater_history WHERE pipeline = :pipeline ORDER BY version DESC LIMIT :limit"""
_PIPELINES = "SELECT pipeline FROM headwater_progress WHERE version > 0"


class SqlProgress(RecordStore, Generic[C]):
    """Tables `headwater_progress` and `headwater_history`, for anyone to query. One connection, opened at first use."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the connection is used by one thread at a time
        self._own = OwnConnection[C]()

    def close(self) -> None:
        with self._lock:
            self._own.close()

    @property
    @abstractmethod
    def _locking_read(self) -> str:
        """Like `_READ`, with the row locked and the store's clock, read after that, as the last column."""

    @abstractmethod
    def _run(self, work: Callable[[Execute], T]) -> T:
        """Call `work` in one transaction and commit it; translate the driver's errors. May call it again."""

    @abstractmethod
    def _query(self, statement: str, values: Mapping[str, object]) -> Sequence[Row]:
        """Read, without a lock."""

    @abstractmethod
    def _bind_timestamp(self, moment: dt.datetime) -> object:
        """A moment as the driver binds it."""

    @abstractmethod
    def _now_parameters(self) -> dict[str, object]:
        """What `_locking_read` needs besides the pipeline."""

    @property
    @abstractmethod
    def _foreign(self) -> tuple[type[Exception], ...]:
        """The errors that `_error` translates."""

    @abstractmethod
    def _error(self, error: Exception) -> HeadwaterError:
        """The translation of a foreign error."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Around all access to the database: translates errors and adds the address."""
        try:
            yield
        except StoreDamaged as damage:
            if self.address in damage.message:
                raise
            raise StoreDamaged(f"{self.address}: {damage.message}", hint=damage.hint) from damage
        except self._foreign as error:
            raise self._error(error) from error

    def history(self, pipeline: str, limit: int) -> Sequence[HistoryEntry]:
        values = {"pipeline": checked_name(pipeline), "limit": max(limit, 0)}
        rows = self._query(_HISTORY, values)
        with self._reading(f"the history of {pipeline!r}"):
            return [HistoryEntry.from_json(_json_object(row[0])) for row in rows]

    def pipelines(self) -> Sequence[str]:
        return sorted(str(row[0]) for row in self._query(_PIPELINES, {}))

    def ledger(self, pipeline: str) -> SqlLedger:
        """The bookmarks of a pipeline."""
        return SqlLedger(checked_name(pipeline), self._run, self._fenced)

    def _fenced(self, lease: Lease, work: Callable[[Execute], None]) -> None:
        """Write while the lease is locked, or not at all (G4)."""

        def write(execute: Execute) -> None:
            values = {"pipeline": lease.pipeline, **self._now_parameters()}
            rows = execute(self._locking_read, values)
            record = self._record(lease.pipeline, rows[0]) if rows else Record(Progress(lease.pipeline))
            record.check_lease(lease, _timestamp(rows[0][-1]) if rows else dt.datetime.now(dt.UTC))
            work(execute)

        self._run(write)

    def _read(self, pipeline: str) -> Record:
        rows = self._query(_READ, {"pipeline": pipeline})
        return self._record(pipeline, rows[0]) if rows else Record(Progress(pipeline))

    def _change(self, pipeline: str, decide: Decision, entry: HistoryEntry | None) -> Record:
        def work(execute: Execute) -> Record:
            rows = execute(self._locking_read, {"pipeline": pipeline, **self._now_parameters()})
            if not rows:
                execute(_ADD_EMPTY, {"pipeline": pipeline})
                rows = execute(self._locking_read, {"pipeline": pipeline, **self._now_parameters()})
            stored, now = self._record(pipeline, rows[0]), rows[0][-1]
            record = decide(stored, _timestamp(now))
            if record is not stored:
                execute(_WRITE, {**self._values(record), "now": now})
                if entry is not None:
                    execute(_ADD_ENTRY, self._entry_values(record.progress, entry))
            return record

        return self._run(work)

    def _record(self, pipeline: str, row: Row) -> Record:
        version, epoch, mark, intent, waiting, owner, expires_at = row[:7]
        with self._reading(f"the progress of {pipeline!r}"):
            if not isinstance(version, int) or not isinstance(epoch, int):
                raise TypeError(f"version {version!r} and epoch {epoch!r} must be integers")
            data = {
                "pipeline": pipeline,
                "version": version,
                "epoch": epoch,
                "mark": None if mark is None else _json_object(mark),
                "intent": None if intent is None else _json_object(intent),
                "waiting": None if waiting is None else _json_list(waiting),
            }
            owner = None if owner is None else _text(owner)
            return Record(Progress.from_json(data), owner, None if expires_at is None else _timestamp(expires_at))

    def _values(self, record: Record) -> dict[str, object]:
        progress = record.progress
        return {
            "pipeline": progress.pipeline,
            "version": progress.version,
            "epoch": progress.epoch,
            "mark": json.dumps(progress.mark.to_json()) if progress.mark else None,
            "mark_text": _readable(progress.mark) if progress.mark else None,
            "intent": json.dumps(progress.intent.to_json()) if progress.intent else None,
            "waiting": json.dumps([paused.to_json() for paused in progress.paused]) if progress.paused else None,
            "lease_owner": record.owner,
            "lease_expires_at": self._bind_timestamp(record.expires_at) if record.expires_at else None,
        }

    def _entry_values(self, progress: Progress, entry: HistoryEntry) -> dict[str, object]:
        return {
            "pipeline": progress.pipeline,
            "version": progress.version,
            "at": self._bind_timestamp(entry.at),
            "kind": entry.kind,
            "who": _readable(entry.who),
            "entry": json.dumps(entry.to_json()),
        }


def on_conflict(columns: Iterable[str], key: Sequence[str]) -> str:
    """For an insert that writes over rows with the same key; both databases spell it alike."""
    others = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {others}"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, found {type(value).__name__}")
    return value


def _json_object(value: object) -> dict[str, Json]:
    data = json.loads(_text(value))
    if not isinstance(data, dict):
        raise TypeError(f"expected a JSON object, found {data!r}")  # absence is a NULL column, not a JSON null (W3)
    return data


def _json_list(value: object) -> list[Json]:
    data = json.loads(_text(value))
    if not isinstance(data, list):
        raise TypeError(f"expected a JSON list, found {data!r}")
    return data


def _timestamp(value: object) -> dt.datetime:
    return value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(_text(value))


def _readable(value: Mark | str) -> str:
    """A text for people to query: characters that a database cannot store are replaced. The JSON column is exact."""
    return str(value).replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
