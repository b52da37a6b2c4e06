"""What the state of the slot means for a pipeline. Pure: looking is done before, acting afterwards."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.config.postgres_source import PostgresSource
from headwater.model.errors import HeadwaterError, SlotOverBudget, SourceUnreachable
from headwater.model.lsn_mark import LsnMark
from headwater.sources.postgres.guard.sameness import COPY_AGAIN, wrong_source
from headwater.sources.postgres.guard.sizes import size_text, time_text
from headwater.sources.postgres.guard.slot_state import GuardState, SlotState

_GAP_BYTES = 64 * 1024 * 1024  # what every peek reads again: about half a second
_GROWN_BYTES = 16 * 1024 * 1024  # one segment of the log: less than that frees nothing
_LOG_STANDBY_VERSION = 160_000
_SHARE_LEFT = 4  # a quarter of max_slot_wal_keep_size
_OLD_CATALOG = 100_000_000  # half of autovacuum_freeze_max_age: vacuum will soon have to hurry


@dataclass(frozen=True)
class Verdict:
    """Whether the pipeline may go on, and what should be done for the slot."""

    warnings: tuple[str, ...] = ()
    error: HeadwaterError | None = None
    give_up_slot: bool = False  # drop it, then raise the error
    log_standby: bool = False  # let the server note which transactions run, so that restart_lsn can follow
    heartbeat: bool = False  # write a message, so that there is a commit to acknowledge


def judge(
    state: GuardState, mark: LsnMark | None, settings: PostgresSource, heartbeat_at: dt.datetime | None = None
) -> Verdict:
    """`heartbeat_at`: the server's time (`ServerState.now`) of our last heartbeat, None: none yet.

    The error is the first thing that is wrong, from what the server is to how much it keeps; warnings come beside it.
    """
    error = wrong_source(state, mark, settings.slot) or _in_use(state.slot)
    slot = state.slot
    if error or slot is None:
        return Verdict(error=error)
    warnings = tuple(_warnings(state, slot, settings))
    if state.retained_bytes >= settings.guard.budget:
        give_up = settings.guard.at_budget == "drop_slot"
        return Verdict(warnings, _over_budget(state, settings, given_up=give_up), give_up_slot=give_up)
    primary = not state.server.standby
    grown = state.unacknowledged_bytes > _GROWN_BYTES
    return Verdict(
        warnings,
        log_standby=primary and state.server.version >= _LOG_STANDBY_VERSION and slot.restart_gap > _GAP_BYTES,
        heartbeat=primary and grown and _is_due(state.server.now, settings.guard.heartbeat, heartbeat_at),
    )


def _in_use(slot: SlotState | None) -> SourceUnreachable | None:
    if slot is None or slot.active_pid is None:
        return None
    named = f", application {slot.active_as!r}" if slot.active_as else ""
    return SourceUnreachable(
        f"slot {slot.name} is being read by another session (pid {slot.active_pid}{named})",
        hint="one slot serves one pipeline; if nobody should be reading it, look at that session in pg_stat_activity",
    )


def _over_budget(state: GuardState, settings: PostgresSource, *, given_up: bool) -> SlotOverBudget:
    kept, budget = size_text(state.retained_bytes), size_text(settings.guard.budget)
    held = f"slot {settings.slot} makes the server keep {kept} of its log, and the budget is {budget}"
    if given_up:
        return SlotOverBudget(
            f"{held}: it was given up (at_budget: drop_slot), and the server may remove the log",
            hint=COPY_AGAIN,
        )
    behind = size_text(state.unacknowledged_bytes)
    holder = (
        f"; {state.server.oldest} is open since {_moment(state.server.oldest.began)}" if state.server.oldest else ""
    )
    return SlotOverBudget(
        f"{held}; {behind} of it have not been read{holder}",
        hint="raise guard.budget until the pipeline has caught up; or give the slot up, to save the disk: "
        f"SELECT pg_drop_replication_slot('{settings.slot}'), and then headwater rewind NAME --to snapshot",
    )


def _warnings(state: GuardState, slot: SlotState, settings: PostgresSource) -> Iterator[str]:
    kept, budget = state.retained_bytes, settings.guard.budget
    if budget / 2 <= kept < budget:
        at = "the pipeline stops" if settings.guard.at_budget == "stop" else "the slot is dropped"
        yield (
            f"slot {slot.name} makes the server keep {size_text(kept)} of its log; {at} at {size_text(budget)} "
            f"(guard.budget), {size_text(state.unacknowledged_bytes)} of it are unread"
        )
    yield from _about_loss(slot, kept)
    oldest, now = state.server.oldest, state.server.now
    if oldest and now - oldest.began >= settings.guard.oldest_transaction:
        end = f"ROLLBACK PREPARED '{oldest.prepared}'" if oldest.prepared else f"pg_terminate_backend({oldest.pid})"
        yield (
            f"{oldest} is open since {_moment(oldest.began)} ({time_text(now - oldest.began)}): the server keeps the "
            f"log from there on, and every cycle reads it again; end it if nobody needs it ({end})"
        )
    if (slot.catalog_xmin_age or 0) >= _OLD_CATALOG:
        yield (
            f"slot {slot.name} holds back the vacuum of system tables by {slot.catalog_xmin_age:,} transactions; "
            "let the pipeline catch up, or drop the slot if nobody reads it"
        )


def _about_loss(slot: SlotState, kept: int) -> Iterator[str]:
    if slot.wal_status == "unreserved":
        yield (
            f"slot {slot.name} is about to be lost: the server removes the log that comes next at a coming checkpoint; "
            "let the pipeline run now, and raise max_slot_wal_keep_size"
        )
    elif slot.safe_bytes is not None and slot.safe_bytes * (_SHARE_LEFT - 1) < kept:
        yield (
            f"slot {slot.name} is lost after {size_text(max(slot.safe_bytes, 0))} more of the log "
            f"(it keeps {size_text(kept)}); let the pipeline catch up, or raise max_slot_wal_keep_size"
        )


def _is_due(now: dt.datetime, every: dt.timedelta | None, last: dt.datetime | None) -> bool:
    return every is not None and (last is None or now - last >= every)


def _moment(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
