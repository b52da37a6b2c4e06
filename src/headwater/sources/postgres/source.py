"""The `postgres` source: an initial copy of tables at an exported snapshot, then their changes from the WAL."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import BadPosition, SourceChanged, UnknownName
from headwater.model.position.lsn import lsn_number, lsn_text
from headwater.model.position.marks import LsnMark, Mark
from headwater.model.position.window import Window
from headwater.model.protocols.source import Claim, ComparisonPoint, CurrentRows, Lag, Plan, StreamPlan
from headwater.model.rows import Rows
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.catalog import ColumnTypes
from headwater.sources.postgres.guard.checks import judge
from headwater.sources.postgres.guard.slot import GuardedSlot, SlotCheck
from headwater.sources.postgres.tables import TablesNow, publish_tables, read_tables, reconciled_tables

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.postgres.initial_copy.windows import CopyWindows
    from headwater.sources.postgres.verify import SnapshotReader
    from headwater.sources.postgres.wal.windows import WalWindow, WalWindows

# One mark serves all tables:
#
# | in the mark | means |
# | --- | --- |
# | `lsn` | every transaction that committed before it has landed |
# | a table's `copied` | its changes count from here on: earlier ones are in its copy |
# | `copied_to` | its copy is unfinished, and its changes wait |
# | `landed` | its changes waited and are caught up from here |
# | `stale` | why it must be copied again: something that the WAL does not show |
#
# The slot is only peeked. It is moved to the mark last of all (G10).

CATALOG_SECONDS = 10.0  # between two reads of the catalog while the WAL is quiet: for new tables, and DDL without rows


class PostgresSource:
    """Tables of one database, through one slot."""

    def __init__(self, settings: PostgresSourceSettings, cores: int, catalog_seconds: float = CATALOG_SECONDS) -> None:
        self._settings, self._cores, self._catalog_seconds = settings, cores, catalog_seconds
        self._session = PostgresSession(settings.url)
        self._slot = GuardedSlot(self._session, settings)
        self._column_types = ColumnTypes(self._session)
        self._windows: tuple[CopyWindows, WalWindows] | None = None
        self._planned: tuple[Window, WalWindow] | None = None
        self._quiet_at = 0  # the end of the WAL when it held nothing for us
        self._catalog_read_at = 0.0
        self._copied_last = False

    @property
    def address(self) -> str:
        return self._session.address

    def plan(
        self,
        mark: Mark | None,
        *,
        claim: Claim | None = None,
        skip: frozenset[str] = frozenset(),  # noqa: ARG002 - one stream, or one mark for all
    ) -> Plan:
        return self._preview(mark) if claim is None else self._next_window(mark)

    def _preview(self, mark: Mark | None) -> Plan:
        """Read only: creates nothing on the server and copies nothing."""
        self._planned = None
        known = self._lsn_mark(mark)
        self._session.ping()
        slot = self._slot.check(known)
        now = read_tables(self._session, self._settings, known)
        if known is None or not known.slot:
            return self._copy_preview(known, now, sorted(now.tables), slot)
        base = replace(known, streams=reconciled_tables(self._session, now, known))
        wanted = self._copies.wanted(base, now)
        plan = self._copy_preview(known, now, wanted, slot) if wanted else self._wal_plan(known, base, slot)
        return plan or Plan(None, warnings=slot.warnings)

    def _next_window(self, mark: Mark | None) -> Plan:
        """A copy of the tables that need one, or what the WAL holds for the others."""
        self._planned = None
        known = self._lsn_mark(mark)
        self._session.ping()
        slot = self._slot.guard(known)
        if self._is_quiet(slot):
            return Plan(None, warnings=slot.warnings)
        now = publish_tables(self._session, self._settings, known)
        begun = known is not None and bool(known.slot)
        if known is not None and begun:
            base = replace(known, streams=reconciled_tables(self._session, now, known))
        else:
            base = self._slot.begin(known)
        self._catalog_read_at = time.monotonic()
        plan = self._next(known if begun else None, base, now, slot)
        if plan is None and slot.wants_heartbeat:
            self._slot.send_heartbeat(slot)
            return Plan(None, warnings=slot.warnings, more=True)
        if plan is None:
            self._quiet_at = slot.end
            return Plan(None, warnings=(*slot.warnings, *now.warnings))
        window = replace(plan.window, start=mark) if plan.window else None
        return replace(plan, window=window, warnings=(*slot.warnings, *now.warnings, *plan.warnings))

    def _next(self, known: LsnMark | None, base: LsnMark, now: TablesNow, slot: SlotCheck) -> Plan | None:
        wanted = self._copies.wanted(base, now)
        # Between two windows of a long copy the tables that are not copied get a window of the WAL.
        first = known is not None and (not wanted or self._copied_last)
        self._copied_last = False
        plan = self._wal_plan(known, base, slot) if known is not None and first else None
        if plan is None and wanted:
            self._copied_last = True
            return self._copy_plan(base, now, wanted)
        return replace(plan, more=plan.more or bool(wanted)) if plan else None

    def _is_quiet(self, slot: SlotCheck) -> bool:
        """True if the WAL has not grown since it held nothing for us, and the catalog was read a moment ago."""
        return slot.end == self._quiet_at and time.monotonic() - self._catalog_read_at < self._catalog_seconds

    def _wal_plan(self, known: LsnMark, base: LsnMark, slot: SlotCheck) -> Plan | None:
        planned_wal = self._wal.following(known, base.streams, slot.end)
        if planned_wal is None:
            return None
        if planned_wal.end.labels or planned_wal.end.cut != known.cut:
            # A label or a comparison relies on this position: DDL may have run after the catalog was read.
            now = read_tables(self._session, self._settings, known)
            seen = reconciled_tables(self._session, now, known, relied_on=True)
            if seen != base.streams:
                return self._wal_plan(known, replace(base, streams=seen), slot)
        window = Window(known, planned_wal.end)
        self._planned = (window, planned_wal)
        streams = [
            StreamPlan(stream, window, rows, f"the WAL up to {lsn_text(planned_wal.end.lsn)}")
            for stream in sorted(planned_wal.end.streams)
            if (rows := planned_wal.rows_of(stream))
        ]
        return Plan(window, tuple(streams), more=planned_wal.more, warnings=planned_wal.warnings)

    def _copy_plan(self, base: LsnMark, now: TablesNow, wanted: Sequence[str]) -> Plan:
        end = self._copies.following(base, now, wanted)
        window = Window(base, end)
        streams = [
            StreamPlan(stream, window, _rows(now, stream), f"copied in the snapshot at {lsn_text(seen.copied)}")
            for stream, seen in sorted(end.streams.items())
            if stream in now.tables and seen != base.streams.get(stream) and seen.copied_to != 0
        ]
        return Plan(window, tuple(streams), more=True, warnings=tuple(_why_again(base, wanted)))

    def _copy_preview(self, known: LsnMark | None, now: TablesNow, wanted: Sequence[str], slot: SlotCheck) -> Plan:
        """The copy that a cycle would make. This window cannot be read."""
        start = known or None
        window = Window(start, self._slot.here(known))
        streams = [
            StreamPlan(stream, window, _rows(now, stream), _why_copy(known, stream))
            for stream in wanted
            if stream in now.tables
        ]
        return Plan(window, tuple(streams), more=True, warnings=(*slot.warnings, *now.warnings))

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        start, end = self._lsn_mark(window.start), self._lsn_mark(window.end)
        assert end is not None  # noqa: S101 - windows have an end
        if self._is_copy(start, end):
            yield self._copies.rows(start, end)
            return
        assert start is not None  # noqa: S101 - the first window of all is a copy
        planned, self._planned = self._planned, None
        planned_wal = planned[1] if planned and planned[0] == window else self._wal.again(start, end)
        self._planned = (window, planned_wal)  # a second try in this process need not read the slot again
        yield self._wal.rows(planned_wal)

    def abandoned(self, window: Window) -> str:
        """A copy's snapshot ends with its process."""
        start, end = self._lsn_mark(window.start), self._lsn_mark(window.end)
        if end is None or not self._is_copy(start, end):
            return ""
        return self._copies.why_not_again(start, end)

    @staticmethod
    def _is_copy(start: LsnMark | None, end: LsnMark) -> bool:
        """A window either copies tables or reads the WAL."""
        before = start.streams if start else {}
        return (
            start is None
            or not start.slot
            or any(
                stream not in before
                or (seen.copied, seen.copied_to) != (before[stream].copied, before[stream].copied_to)
                for stream, seen in end.streams.items()
            )
        )

    def acknowledge(self, mark: Mark) -> None:
        """Let the server remove the WAL that every table has (G10)."""
        known = self._lsn_mark(mark)
        assert known is not None  # noqa: S101 - a mark is acknowledged
        if not self._copies.under_way(known):
            self._copies.close()
        self._slot.acknowledge(_needed_from(known))

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `snapshot`, `snapshot TABLE…`, `latest`, or an LSN that the slot still has."""
        return rewound_mark(text, self._lsn_mark(mark), self._slot, self._settings)

    def lag(self, mark: Mark | None) -> Sequence[Lag]:
        """Bytes of WAL behind the mark."""
        known = self._lsn_mark(mark)
        end = self._slot.state(None).server.lsn
        at = known.lsn if known and known.slot else end
        return [Lag(self._settings.slot, "log", at, end, None)]

    def label(self, text: str) -> str:
        return lsn_text(self._slot.label(text))

    @contextmanager
    def comparison_point(self) -> Iterator[ComparisonPoint]:
        """Compares in an exported snapshot; a WAL message asks for a window that ends at its LSN."""
        from headwater.sources.postgres.verify import WalComparisonPoint

        with self._snapshot() as rows:
            self._slot.ask_for_cut(rows.snapshot.lsn)
            yield WalComparisonPoint(rows)

    @contextmanager
    def current_rows(self, mark: Mark, keys: Mapping[str, pa.Table]) -> Iterator[Sequence[CurrentRows]]:
        from headwater.sources.postgres.verify import now_of_keys

        known = self._lsn_mark(mark)
        assert known is not None  # noqa: S101 - something landed
        with self._snapshot() as rows:
            yield list(now_of_keys(rows, known, keys))

    @contextmanager
    def _snapshot(self) -> Iterator[SnapshotReader]:
        from headwater.sources.postgres.initial_copy.snapshot import CopySnapshot
        from headwater.sources.postgres.verify import SnapshotReader

        with closing(CopySnapshot(self._settings.url)) as snapshot:
            now = read_tables(self._session, self._settings, None)
            yield SnapshotReader(self._settings, snapshot, now, self._column_types, 2 * self._cores)

    def close(self) -> None:
        if self._windows is not None:
            for windows in self._windows:
                windows.close()
            self._windows = None
        self._session.close()

    @property
    def _copies(self) -> CopyWindows:
        return self._open()[0]

    @property
    def _wal(self) -> WalWindows:
        return self._open()[1]

    def _open(self) -> tuple[CopyWindows, WalWindows]:
        if self._windows is None:
            from headwater.sources.postgres.initial_copy.windows import CopyWindows
            from headwater.sources.postgres.wal.windows import WalWindows

            copies = CopyWindows(self._settings, self._column_types, self._cores)
            self._windows = (copies, WalWindows(self._settings, self._column_types, self._cores))
        return self._windows

    def _lsn_mark(self, mark: Mark | None) -> LsnMark | None:
        if mark is not None and not isinstance(mark, LsnMark):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is not an LSN of PostgreSQL",
                hint="restore the former source settings, or rewind the pipeline: headwater rewind NAME --to start",
            )
        return mark


def _needed_from(mark: LsnMark) -> int:
    """The first LSN that some table still needs."""
    waiting = [seen.copied for seen in mark.streams.values() if seen.copied_to is not None]
    behind = [seen.landed for seen in mark.streams.values() if seen.landed is not None]
    return min([mark.lsn, *waiting, *behind])


def _rows(now: TablesNow, stream: str) -> int | None:
    return sum(leaf.rows for leaf in now.tables[stream].leaves)


def _why_copy(mark: LsnMark | None, stream: str) -> str:
    seen = mark.streams.get(stream) if mark else None
    return f"will be copied again: {seen.stale}" if seen and seen.stale else "will be copied"


def _why_again(base: LsnMark, wanted: Sequence[str]) -> Iterator[str]:
    for stream in wanted:
        seen = base.streams.get(stream)
        if seen and seen.stale:
            yield f"{stream}: copying the table again: {seen.stale}"


_AGAIN = "an operator asked for another copy"


def rewound_mark(
    text: str, mark: LsnMark | None, slot: GuardedSlot, settings: PostgresSourceSettings
) -> LsnMark | None:
    """`start`, `snapshot`, `snapshot TABLE…`, `latest`, or an LSN. Raises BadPosition, UnknownName."""
    words = shlex.split(text)
    if words[:1] == ["snapshot"] or text.strip() == "start":
        return _copied_again(mark, words[1:], slot, settings)
    if mark is None or not mark.slot:
        raise BadPosition(f"cannot rewind to {text!r}: no table has been copied yet", hint="run the pipeline first")
    if text.strip() == "latest":
        return replace(slot.here(mark), turn=mark.turn + 1)
    return _mark_at(text.strip(), mark, slot)


def _copied_again(
    mark: LsnMark | None, streams: Sequence[str], slot: GuardedSlot, settings: PostgresSourceSettings
) -> LsnMark | None:
    """All tables, or some of them; if the slot or the server changed, all of them, through a new slot."""
    if mark is None:
        return None
    unknown = [stream for stream in streams if stream not in mark.streams]
    if unknown:
        raise UnknownName(
            f"{unknown[0]} is not a captured table", hint=f"captured tables: {', '.join(sorted(mark.streams))}"
        )
    state = slot.state(mark)
    server = state.server
    broken = judge(state, mark if mark.slot else None, settings).error
    if broken or not mark.slot:
        # LSNs of another history do not compare with those that have landed: all of them come after.
        other = (server.cluster, server.timeline) != (mark.cluster, mark.timeline) or server.lsn < mark.lsn
        every = {stream: replace(table, stale=_AGAIN) for stream, table in mark.streams.items()}
        era = mark.era + 1 if other and mark.cluster else mark.era
        return LsnMark(0, turn=mark.turn + 1, era=era, cluster=mark.cluster, timeline=mark.timeline, streams=every)
    tables = {
        stream: replace(table, stale=_AGAIN) if stream in streams or not streams else table
        for stream, table in mark.streams.items()
    }
    return replace(mark, turn=mark.turn + 1, streams=tables, labels=())


def _mark_at(text: str, mark: LsnMark, slot: GuardedSlot) -> LsnMark:
    try:
        lsn = lsn_number(text)
    except ValueError as error:
        raise BadPosition(
            str(error), hint="use snapshot, snapshot TABLE, latest, or an LSN such as 0/16B3748"
        ) from None
    oldest = slot.oldest_lsn()
    if not oldest <= lsn <= mark.lsn:
        raise BadPosition(
            f"{text}: the slot holds WAL from {lsn_text(oldest)}, and the mark is at {lsn_text(mark.lsn)}",
            hint="use an LSN between the two; to go back further, copy the tables again: --to snapshot",
        )
    return replace(mark, lsn=lsn, turn=mark.turn + 1, commit=None, labels=())
