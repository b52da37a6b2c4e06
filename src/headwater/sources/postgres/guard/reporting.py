"""How a slot and its mark stand, for people: asked from outside, while a run may be going on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.config.postgres_source import PostgresSource
from headwater.model.lsn import lsn_text
from headwater.model.lsn_mark import LsnMark, TableSeen
from headwater.sources.postgres.guard.judging import Verdict, judge
from headwater.sources.postgres.guard.slot_state import GuardState, look
from headwater.sources.postgres.guard.timelines import with_timelines
from headwater.sources.sql.postgres_session import PostgresSession


@dataclass(frozen=True)
class SlotReport:
    """What was seen, and what the guardian says of it."""

    address: str
    state: GuardState
    verdict: Verdict

    @property
    def healthy(self) -> bool:
        return not self.verdict.error and not self.verdict.warnings


def report(settings: PostgresSource, mark: LsnMark | None) -> SlotReport:
    """One look. Raises SourceUnreachable."""
    session = PostgresSession(settings.url)
    try:
        expected = mark if mark and mark.slot else None  # rewound to a snapshot it expects nothing of the slot
        state = with_timelines(look(session, settings.slot), settings.url, expected)
    finally:
        session.close()
    # Whoever reads it now is most likely the pipeline itself.
    unread = replace(state, slot=replace(state.slot, active_pid=None)) if state.slot else state
    return SlotReport(session.address, state, judge(unread, expected, settings))


def behind_bytes(state: GuardState, mark: LsnMark | None) -> int | None:
    """The log that has not landed; None: the mark is not of this log."""
    if mark is None or not mark.slot or mark.cluster != state.server.cluster:
        return None
    return max(state.server.lsn - mark.lsn, 0)


def table_state(table: TableSeen) -> tuple[str, str]:
    """In a word, and what there is to say beside it."""
    if table.stale:
        return "stale", f"is copied again: {table.stale}"
    if table.copied_to is not None:
        return "being copied", f"{table.copied_to:,} pages so far, in the snapshot at {lsn_text(table.copied)}"
    if table.landed is not None:
        return "catching up", f"changes have landed up to {lsn_text(table.landed)}"
    return "copied", f"at {lsn_text(table.copied)}"
