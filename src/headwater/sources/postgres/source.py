"""The `postgres` source: tables copied at a snapshot, then every change of theirs from the log. One mark for all.

| in the mark | means |
| --- | --- |
| `lsn` | every transaction that committed before it has landed |
| a table's `copied` | its changes count from here on: earlier ones are in its copy |
| `copied_to` | it is being copied, and its changes wait |
| `landed` | they have waited, and are to be caught up |
| `stale` | it is to be copied again: something happened that the log does not tell |

The slot is only peeked at. It is moved, last of all (G10), to where the mark stands.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.postgres_source import PostgresSource
from headwater.model.comparing import Again, Meeting
from headwater.model.errors import SourceChanged
from headwater.model.lsn import lsn_text
from headwater.model.lsn_mark import LsnMark
from headwater.model.marks import Mark
from headwater.model.progress import Lease
from headwater.model.rows import Rows
from headwater.model.source import Lag, Plan, StreamPlan
from headwater.model.window import Window
from headwater.sources.postgres.guard.guarded_slot import GuardedSlot, Looked
from headwater.sources.postgres.kinds import Kinds
from headwater.sources.postgres.tables import TablesNow, look_at_tables, publish_tables, reconciled_tables
from headwater.sources.sql.postgres_session import PostgresSession

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.postgres.comparing import SnapshotRows
    from headwater.sources.postgres.copy_windows import CopyWindows
    from headwater.sources.postgres.log_windows import LogWindow, LogWindows

_LOOK_SECONDS = 10.0  # how often the catalog is asked while nothing happens: for new tables, and DDL without rows


class CapturedPostgres:
    """Tables of one database, through one slot."""

    def __init__(self, settings: PostgresSource, cores: int) -> None:
        self._settings, self._cores = settings, cores
        self._session = PostgresSession(settings.url)
        self._slot = GuardedSlot(self._session, settings)
        self._kinds = Kinds(self._session)
        self._opened: tuple[CopyWindows, LogWindows] | None = None
        self._planned: tuple[Window, LogWindow] | None = None
        self._quiet_at = 0  # the end of the log when it had nothing for us
        self._looked_at = 0.0  # the catalog
        self._copied_last = False

    @property
    def address(self) -> str:
        return self._session.address

    def plan(self, mark: Mark | None) -> Plan:
        """Only looks: nothing is made on the server, nothing is copied."""
        self._planned = None
        known = self._ours(mark)
        self._session.ping()
        looked = self._slot.look(known)
        now = look_at_tables(self._session, self._settings, known)
        if known is None or not known.slot:
            return self._foreseen(known, now, sorted(now.tables), looked)
        base = replace(known, tables=reconciled_tables(self._session, now, known))
        wanted = self._copies.wanted(base, now)
        plan = self._foreseen(known, now, wanted, looked) if wanted else self._log_plan(known, base, looked)
        return plan or Plan(None, warnings=looked.warnings)

    def stage(self, mark: Mark | None, lease: Lease, run: str) -> Plan:  # noqa: ARG002 - no ledger of our own
        """The next window: a copy of the tables that wait for one, or what the log has for the others."""
        self._planned = None
        known = self._ours(mark)
        self._session.ping()
        looked = self._slot.guard(known)
        if self._is_quiet(looked):
            return Plan(None, warnings=looked.warnings)
        now = publish_tables(self._session, self._settings, known)
        begun = known is not None and bool(known.slot)
        if known is not None and begun:
            base = replace(known, tables=reconciled_tables(self._session, now, known))
        else:
            base = self._slot.begin(known)
        self._looked_at = time.monotonic()
        plan = self._next(known if begun else None, base, now, looked)
        if plan is None and looked.wants_heartbeat:
            self._slot.beat(looked)
            return Plan(None, warnings=looked.warnings, more=True)
        if plan is None:
            self._quiet_at = looked.end
            return Plan(None, warnings=(*looked.warnings, *now.warnings))
        window = replace(plan.window, start=mark) if plan.window else None
        return replace(plan, window=window, warnings=(*looked.warnings, *now.warnings, *plan.warnings))

    def _next(self, known: LsnMark | None, base: LsnMark, now: TablesNow, looked: Looked) -> Plan | None:
        wanted = self._copies.wanted(base, now)
        # Between two windows of a long copy the log goes on, for those who do not wait for it.
        first = known is not None and (not wanted or self._copied_last)
        self._copied_last = False
        plan = self._log_plan(known, base, looked) if known is not None and first else None
        if plan is None and wanted:
            self._copied_last = True
            return self._copy_plan(base, now, wanted)
        return replace(plan, more=plan.more or bool(wanted)) if plan else None

    def _is_quiet(self, looked: Looked) -> bool:
        """The log has not grown since there was nothing in it, and the catalog was looked at a moment ago."""
        return looked.end == self._quiet_at and time.monotonic() - self._looked_at < _LOOK_SECONDS

    def _log_plan(self, known: LsnMark, base: LsnMark, looked: Looked) -> Plan | None:
        found = self._log.following(known, base.tables, looked.end)
        if found is None:
            return None
        if found.end.labels or found.end.cut != known.cut:
            # Whoever names this place, or compares here, relies on it: DDL may have come after the catalog was looked at.
            seen = reconciled_tables(self._session, look_at_tables(self._session, self._settings, known), known)
            if seen != base.tables:
                return self._log_plan(known, replace(base, tables=seen), looked)
        window = Window(known, found.end)
        self._planned = (window, found)
        streams = [
            StreamPlan(stream, window, rows, f"the log up to {lsn_text(found.end.lsn)}")
            for stream in sorted(found.end.tables)
            if (rows := found.rows_of(stream))
        ]
        return Plan(window, tuple(streams), more=found.more, warnings=found.warnings)

    def _copy_plan(self, base: LsnMark, now: TablesNow, wanted: Sequence[str]) -> Plan:
        end = self._copies.following(base, now, wanted)
        window = Window(base, end)
        streams = [
            StreamPlan(stream, window, _rows(now, stream), f"copied in the snapshot at {lsn_text(seen.copied)}")
            for stream, seen in sorted(end.tables.items())
            if stream in now.tables and seen != base.tables.get(stream) and seen.copied_to != 0
        ]
        return Plan(window, tuple(streams), more=True, warnings=tuple(_why_again(base, wanted)))

    def _foreseen(self, known: LsnMark | None, now: TablesNow, wanted: Sequence[str], looked: Looked) -> Plan:
        """A copy that a real cycle would make; nobody can read this window."""
        start = known or None
        window = Window(start, self._slot.here(known))
        streams = [
            StreamPlan(stream, window, _rows(now, stream), _why_copy(known, stream))
            for stream in wanted
            if stream in now.tables
        ]
        return Plan(window, tuple(streams), more=True, warnings=(*looked.warnings, *now.warnings))

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        start, end = self._ours(window.start), self._ours(window.end)
        assert end is not None  # noqa: S101 - windows have an end
        if self._is_copy(start, end):
            yield self._copies.rows(start, end)
            return
        assert start is not None  # noqa: S101 - the first window of all is a copy
        planned, self._planned = self._planned, None
        found = planned[1] if planned and planned[0] == window else self._log.again(start, end)
        self._planned = (window, found)  # a second try in this process need not read the slot again
        yield self._log.rows(found)

    def abandoned(self, window: Window) -> str:
        """A copy's snapshot ends with the process that held it."""
        start, end = self._ours(window.start), self._ours(window.end)
        if end is None or not self._is_copy(start, end):
            return ""
        return self._copies.why_not_again(start, end)

    @staticmethod
    def _is_copy(start: LsnMark | None, end: LsnMark) -> bool:
        """A window either copies tables or reads the log."""
        before = start.tables if start else {}
        return (
            start is None
            or not start.slot
            or any(
                stream not in before
                or (seen.copied, seen.copied_to) != (before[stream].copied, before[stream].copied_to)
                for stream, seen in end.tables.items()
            )
        )

    def acknowledge(self, mark: Mark) -> None:
        """Let the server forget what every table has (G10)."""
        known = self._ours(mark)
        assert known is not None  # noqa: S101 - a mark is acknowledged
        if not self._copies.under_way(known):
            self._copies.close()
        self._slot.acknowledge(_needed_from(known))

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `snapshot`, `snapshot TABLE…`, `latest`, or a place in the log that the slot still has."""
        from headwater.sources.postgres.rewinding import position  # noqa: PLC0415 - only a rewind pays

        return position(text, self._ours(mark), self._slot, self._settings)

    def lag(self, mark: Mark | None) -> Sequence[Lag]:
        """Bytes of the log behind the mark."""
        known = self._ours(mark)
        end = self._slot.state(None).server.lsn
        at = known.lsn if known and known.slot else end
        return [Lag(self._settings.slot, "log", at, end, None)]

    def label(self, text: str) -> str:
        return lsn_text(self._slot.label(text))

    @contextmanager
    def meet(self) -> Iterator[Meeting]:
        """In a snapshot of its own; a message asks for a window that ends where it stands."""
        from headwater.sources.postgres.comparing import LogMeeting  # noqa: PLC0415 - only verify compares

        with self._snapshot() as rows:
            self._slot.ask_for_cut(rows.snapshot.lsn)
            yield LogMeeting(rows)

    @contextmanager
    def again(self, mark: Mark, keys: Mapping[str, pa.Table]) -> Iterator[Sequence[Again]]:
        from headwater.sources.postgres.comparing import now_of_keys  # noqa: PLC0415 - as above

        known = self._ours(mark)
        assert known is not None  # noqa: S101 - something landed
        with self._snapshot() as rows:
            yield list(now_of_keys(rows, known, keys))

    @contextmanager
    def _snapshot(self) -> Iterator[SnapshotRows]:
        from headwater.sources.postgres.comparing import SnapshotRows  # noqa: PLC0415 - as above
        from headwater.sources.postgres.copying.snapshot import CopySnapshot  # noqa: PLC0415

        with closing(CopySnapshot(self._settings.url)) as snapshot:
            now = look_at_tables(self._session, self._settings, None)
            yield SnapshotRows(self._settings, snapshot, now, self._kinds, 2 * self._cores)

    def close(self) -> None:
        if self._opened is not None:
            for windows in self._opened:
                windows.close()
            self._opened = None
        self._session.close()

    @property
    def _copies(self) -> CopyWindows:
        return self._open()[0]

    @property
    def _log(self) -> LogWindows:
        return self._open()[1]

    def _open(self) -> tuple[CopyWindows, LogWindows]:
        if self._opened is None:
            from headwater.sources.postgres.copy_windows import CopyWindows  # noqa: PLC0415 - an idle poll needs no Arrow
            from headwater.sources.postgres.log_windows import LogWindows  # noqa: PLC0415

            copies = CopyWindows(self._settings, self._kinds, self._cores)
            self._opened = (copies, LogWindows(self._settings, self._kinds, self._cores))
        return self._opened

    def _ours(self, mark: Mark | None) -> LsnMark | None:
        if mark is not None and not isinstance(mark, LsnMark):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is no place in PostgreSQL's log",
                hint="restore the former source settings, or rewind the pipeline: headwater rewind NAME --to start",
            )
        return mark


def _needed_from(mark: LsnMark) -> int:
    """The place in the log from which on some table still needs it."""
    waiting = [seen.copied for seen in mark.tables.values() if seen.copied_to is not None]
    behind = [seen.landed for seen in mark.tables.values() if seen.landed is not None]
    return min([mark.lsn, *waiting, *behind])


def _rows(now: TablesNow, stream: str) -> int | None:
    return sum(leaf.rows for leaf in now.tables[stream].leaves)


def _why_copy(mark: LsnMark | None, stream: str) -> str:
    seen = mark.tables.get(stream) if mark else None
    return f"to be copied again: {seen.stale}" if seen and seen.stale else "to be copied"


def _why_again(base: LsnMark, wanted: Sequence[str]) -> Iterator[str]:
    for stream in wanted:
        seen = base.tables.get(stream)
        if seen and seen.stale:
            yield f"{stream} is copied again: {seen.stale}"
