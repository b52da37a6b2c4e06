"""The verdict on the state of a slot: warnings, an error, actions. Pure functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import HeadwaterError, InputError, SlotOverBudget, SourceChanged, SourceUnreachable
from headwater.model.position.lsn import lsn_text
from headwater.model.position.marks import LsnMark
from headwater.pg.connection import COPY_AGAIN
from headwater.sources.postgres.guard.state import GuardState, ServerState, SlotState

_LOG_STANDBY_VERSION = 160_000


@dataclass(frozen=True)
class Tuning:
    """Thresholds of the guard that are not settings."""

    reread_bytes: int = 64 << 20  # WAL that every peek reads again: about half a second
    heartbeat_bytes: int = 16 << 20  # one WAL segment: less than that frees nothing
    remaining_share: int = 4  # warns at a quarter of max_slot_wal_keep_size
    catalog_xmin_age: int = 100_000_000  # half of autovacuum_freeze_max_age: vacuum soon becomes urgent


DEFAULT = Tuning()


@dataclass(frozen=True)
class Verdict:
    """Warnings, the error that stops the pipeline, and what the slot needs."""

    warnings: tuple[str, ...] = ()
    error: HeadwaterError | None = None
    drops_slot: bool = False  # drop it, then raise the error
    log_standby: bool = False  # let the server log its running transactions, so that restart_lsn can advance
    heartbeat: bool = False  # write a message, so that there is a commit to acknowledge


def judge(
    state: GuardState,
    mark: LsnMark | None,
    settings: PostgresSourceSettings,
    heartbeat_at: dt.datetime | None = None,
    tuning: Tuning = DEFAULT,
) -> Verdict:
    """`heartbeat_at`: the server's time (`ServerState.now`) of our last heartbeat; None: none yet.

    The error is the first problem, from the server's identity to the size of its WAL; warnings come beside it.
    """
    error = wrong_source(state, mark, settings.slot) or _in_use(state.slot)
    slot = state.slot
    if error or slot is None:
        return Verdict(error=error)
    warnings = tuple(_warnings(state, slot, settings, tuning))
    if state.retained_bytes >= settings.guard.budget:
        drop = settings.guard.at_budget == "drop_slot"
        return Verdict(warnings, _over_budget(state, settings, dropped=drop), drops_slot=drop)
    primary = not state.server.standby
    has_grown = state.unacknowledged_bytes > tuning.heartbeat_bytes
    return Verdict(
        warnings,
        log_standby=primary and state.server.version >= _LOG_STANDBY_VERSION and slot.restart_gap > tuning.reread_bytes,
        heartbeat=primary and has_grown and _is_due(state.server.now, settings.guard.heartbeat, heartbeat_at),
    )


def _in_use(slot: SlotState | None) -> SourceUnreachable | None:
    if slot is None or slot.active_pid is None:
        return None
    application = f", application {slot.active_as!r}" if slot.active_as else ""
    return SourceUnreachable(
        f"slot {slot.name} is in use by another session (pid {slot.active_pid}{application})",
        hint="one slot serves one pipeline; see that session in pg_stat_activity",
    )


def _over_budget(state: GuardState, settings: PostgresSourceSettings, *, dropped: bool) -> SlotOverBudget:
    size, budget = size_text(state.retained_bytes), size_text(settings.guard.budget)
    problem = f"slot {settings.slot} makes the server keep {size} of WAL, and the budget is {budget}"
    if dropped:
        return SlotOverBudget(
            f"{problem}: the guard dropped it (at_budget: drop_slot), and the server may remove the WAL",
            hint=COPY_AGAIN,
        )
    behind = size_text(state.unacknowledged_bytes)
    holder = (
        f"; {state.server.oldest} is open since {_moment(state.server.oldest.began)}" if state.server.oldest else ""
    )
    return SlotOverBudget(
        f"{problem}; {behind} of it are unread{holder}",
        hint="raise guard.budget until the pipeline has caught up; or drop the slot to save the disk: "
        f"SELECT pg_drop_replication_slot('{settings.slot}'), and then headwater rewind NAME --to snapshot",
    )


def _warnings(state: GuardState, slot: SlotState, settings: PostgresSourceSettings, tuning: Tuning) -> Iterator[str]:
    retained, budget = state.retained_bytes, settings.guard.budget
    if budget / 2 <= retained < budget:
        consequence = "the pipeline stops" if settings.guard.at_budget == "stop" else "the slot is dropped"
        yield (
            f"slot {slot.name} makes the server keep {size_text(retained)} of WAL; {consequence} at {size_text(budget)} "
            f"(guard.budget), {size_text(state.unacknowledged_bytes)} of it are unread"
        )
    yield from _about_loss(slot, retained, tuning.remaining_share)
    oldest, now = state.server.oldest, state.server.now
    if oldest and now - oldest.began >= settings.guard.oldest_transaction:
        remedy = f"ROLLBACK PREPARED '{oldest.prepared}'" if oldest.prepared else f"pg_terminate_backend({oldest.pid})"
        yield (
            f"{oldest} is open since {_moment(oldest.began)} ({time_text(now - oldest.began)}): the server keeps the "
            f"WAL from there on, and every cycle reads it again; end it if it is not needed ({remedy})"
        )
    if (slot.catalog_xmin_age or 0) >= tuning.catalog_xmin_age:
        yield (
            f"slot {slot.name} holds back the vacuum of system tables by {slot.catalog_xmin_age:,} transactions; "
            "let the pipeline catch up, or drop the slot if it is unused"
        )


def _about_loss(slot: SlotState, retained: int, remaining_share: int) -> Iterator[str]:
    if slot.wal_status == "unreserved":
        yield (
            f"slot {slot.name} is about to be lost: a coming checkpoint removes the WAL that comes next; "
            "let the pipeline run now, and raise max_slot_wal_keep_size"
        )
    elif slot.safe_bytes is not None and slot.safe_bytes * (remaining_share - 1) < retained:
        yield (
            f"slot {slot.name} is lost after {size_text(max(slot.safe_bytes, 0))} more of WAL "
            f"(it keeps {size_text(retained)}); let the pipeline catch up, or raise max_slot_wal_keep_size"
        )


def _is_due(now: dt.datetime, every: dt.timedelta | None, last: dt.datetime | None) -> bool:
    return every is not None and (last is None or now - last >= every)


def _moment(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


_PLUGIN = "pgoutput"
_WHY_LOST = {
    "wal_removed": "the WAL that comes next was removed (max_slot_wal_keep_size)",
    "rows_removed": "the primary vacuumed rows that it needed",
    "wal_level_insufficient": "wal_level was lowered",
    "idle_timeout": "it was not read for longer than idle_replication_slot_timeout",
}


def wrong_source(state: GuardState, mark: LsnMark | None, slot: str) -> HeadwaterError | None:
    """Why the WAL after the mark cannot be read here; None: it can. Without a mark only the slot itself is checked."""
    error = mark and (_other_server(state.server, mark) or _other_branch(state.server, mark) or _other_slot(mark, slot))
    if error:
        return error
    if state.slot is None:
        return _missing_slot(state.server, mark, slot) if mark else None
    return (
        _unusable(state.slot, state.server)
        or (_lost(state.slot, state.server, mark) if state.slot.lost else None)
        or (_skipped(state.slot, mark) if mark else None)
    )


def _other_server(server: ServerState, mark: LsnMark) -> SourceChanged | None:
    if not mark.cluster or mark.cluster == server.cluster:
        return None
    (mark_system, mark_database), (system, database) = (text.split("/", 1) for text in (mark.cluster, server.cluster))
    difference = (
        f"another database of the server (oid {database}, the mark is of {mark_database}): it was dropped and "
        "created again, or url names another one"
        if mark_system == system
        else f"another server (system identifier {system}, the mark is of {mark_system}): it was created again, upgraded or restored "
        "from a dump, or url names another one"
    )
    return SourceChanged(f"this is {difference}; LSNs of the mark have no meaning there", hint=COPY_AGAIN)


def _other_branch(server: ServerState, mark: LsnMark) -> HeadwaterError | None:
    """The same server by name, with a history that lacks transactions of the mark."""
    if mark.timeline and server.timeline < mark.timeline and not server.standby:
        return SourceChanged(
            f"the server is on timeline {server.timeline}, and the mark was taken on timeline {mark.timeline}: this is "
            "a former primary, or an older copy",
            hint=f"let url name the present primary; or {COPY_AGAIN}",
        )
    if mark.timeline and server.timeline_ends is not None:
        end = server.timeline_ends.get(mark.timeline)
        if end is None or mark.lsn > end:
            where = "is not in its history" if end is None else f"was left at {lsn_text(end)}"
            return SourceChanged(
                f"the server is on timeline {server.timeline}, and timeline {mark.timeline}, on which the mark was taken "
                f"at {lsn_text(mark.lsn)}, {where}: transactions that have landed are not in it",
                hint=f"a replica that was behind became the primary, or an older copy was restored; {COPY_AGAIN}",
            )
    if server.lsn >= mark.lsn:
        return None
    behind = f"up to {lsn_text(server.lsn)}, and the mark stands at {lsn_text(mark.lsn)}"
    if server.standby:
        # A standby that starts replays again what it had replayed before.
        return SourceUnreachable(f"the standby has replayed the WAL {behind}", hint="try again when it has caught up")
    return SourceChanged(
        f"the server's WAL is written {behind}: it was restored from an older copy, or a replica that was behind "
        "became the primary",
        hint=COPY_AGAIN,
    )


def _other_slot(mark: LsnMark, slot: str) -> SourceChanged | None:
    if mark.slot in ("", slot):
        return None
    return SourceChanged(
        f"the mark was taken from slot {mark.slot}, and the settings name {slot}",
        hint=f"write slot: {mark.slot}; or {COPY_AGAIN}",
    )


def _missing_slot(server: ServerState, mark: LsnMark, slot: str) -> SourceChanged:
    return SourceChanged(
        f"slot {slot} is gone, and with it the WAL that the server kept for this pipeline: {_between(mark, server)}",
        hint=COPY_AGAIN,
    )


def _unusable(slot: SlotState, server: ServerState) -> InputError | None:
    if slot.plugin is None:
        problem = "is a physical slot, which delivers no changes"
    elif slot.database != server.database:
        problem = f"belongs to database {slot.database}, and this is {server.database}"
    elif slot.plugin != _PLUGIN:
        problem = f"decodes with {slot.plugin}, not with {_PLUGIN}"
    elif slot.two_phase:
        problem = "delivers transactions when they are prepared (two_phase), before they commit"
    elif slot.temporary:
        problem = "is temporary: it ends with the session that created it"
    elif slot.synced and server.standby:
        problem = "is the primary's; this standby keeps a copy of it, to be read when it is promoted"
    else:
        return None
    return InputError(f"slot {slot.name} {problem}", hint="write another name in slot:, and the first run creates it")


def _lost(slot: SlotState, server: ServerState, mark: LsnMark | None) -> SourceChanged:
    """A retry does not help: the WAL that comes next is gone."""
    why = _WHY_LOST.get(slot.invalidated, slot.invalidated) or "the WAL that comes next was removed"
    if mark is None:
        return SourceChanged(
            f"slot {slot.name} is lost: {why}",
            hint=f"drop it, and the next run creates a new one: SELECT pg_drop_replication_slot('{slot.name}')",
        )
    return SourceChanged(f"slot {slot.name} is lost: {why}; {_between(mark, server)}", hint=COPY_AGAIN)


def _skipped(slot: SlotState, mark: LsnMark) -> SourceChanged | None:
    """Another reader moved the slot, or it was dropped and created again: it begins after the mark.

    A new slot always does: creating it writes WAL.
    """
    if slot.confirmed is None or slot.confirmed <= mark.lsn:
        return None
    return SourceChanged(
        f"slot {slot.name} stands at {lsn_text(slot.confirmed)}, and the mark at {lsn_text(mark.lsn)}: "
        f"changes in the {size_text(slot.confirmed - mark.lsn)} between them can no longer be read. Another process reads the slot, it was "
        "dropped and created again, or the mark was rewound",
        hint=f"use the slot for this pipeline only, and {COPY_AGAIN}",
    )


def _between(mark: LsnMark, server: ServerState) -> str:
    gap = size_text(max(server.lsn - mark.lsn, 0))
    return (
        f"the mark stands at {lsn_text(mark.lsn)}, the WAL is written up to {lsn_text(server.lsn)}, and changes in the "
        f"{gap} between them can no longer be read"
    )


_STEP = 1000
_UNITS = ("B", "KB", "MB", "GB", "TB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def size_text(count: int) -> str:
    """`12.3 GB`."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < _STEP:
            break
        value /= _STEP if unit != _UNITS[-1] else 1
    return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"


def time_text(duration: dt.timedelta) -> str:
    """`3.5 h`."""
    seconds = duration.total_seconds()
    for length, unit in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
