"""Is this the log that the mark was taken from, and is what comes next still in it? (G9)"""

from __future__ import annotations

from headwater.model.errors import HeadwaterError, InputError, SourceChanged, SourceUnreachable
from headwater.model.lsn import lsn_text
from headwater.model.lsn_mark import LsnMark
from headwater.sources.postgres.guard.sizes import size_text
from headwater.sources.postgres.guard.slot_state import GuardState, ServerState, SlotState

COPY_AGAIN = (
    "copy the tables again, which also removes rows that were deleted meanwhile: headwater rewind NAME --to snapshot"
)
_PLUGIN = "pgoutput"
_WHY_LOST = {
    "wal_removed": "the log that comes next was removed (max_slot_wal_keep_size)",
    "rows_removed": "the primary vacuumed rows that it needed",
    "wal_level_insufficient": "wal_level was lowered",
    "idle_timeout": "it was not read for longer than idle_replication_slot_timeout",
}


def wrong_source(state: GuardState, mark: LsnMark | None, slot: str) -> HeadwaterError | None:
    """Why the log after the mark cannot be read here; None: it can. Without a mark only the slot itself is looked at."""
    wrong = mark and (_other_server(state.server, mark) or _other_branch(state.server, mark) or _other_slot(mark, slot))
    if wrong:
        return wrong
    if state.slot is None:
        return _gone(state.server, mark, slot) if mark else None
    return (
        _unusable(state.slot, state.server)
        or (_lost(state.slot, state.server, mark) if state.slot.lost else None)
        or (_skipped(state.slot, mark) if mark else None)
    )


def _other_server(server: ServerState, mark: LsnMark) -> SourceChanged | None:
    if not mark.cluster or mark.cluster == server.cluster:
        return None
    (was, was_database), (found, found_database) = (text.split("/", 1) for text in (mark.cluster, server.cluster))
    what = (
        f"another database of the server (oid {found_database}, the mark is of {was_database}): it was dropped and "
        "made again, or url names another one"
        if was == found
        else f"another server (system identifier {found}, the mark is of {was}): it was made anew, upgraded or restored "
        "from a dump, or url names another one"
    )
    return SourceChanged(f"this is {what}; places in its log mean nothing to the mark", hint=COPY_AGAIN)


def _other_branch(server: ServerState, mark: LsnMark) -> HeadwaterError | None:
    """The same server by name, with a history that does not hold what the mark has seen."""
    if mark.timeline and server.timeline < mark.timeline and not server.standby:
        return SourceChanged(
            f"the server is on timeline {server.timeline}, and the mark was taken on timeline {mark.timeline}: this is "
            "a former primary, or an older copy",
            hint=f"let url name the present primary; or {COPY_AGAIN}",
        )
    if mark.timeline and server.timelines_left is not None:
        left = server.timelines_left.get(mark.timeline)
        if left is None or mark.lsn > left:
            where = "is not in its history" if left is None else f"was left at {lsn_text(left)}"
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
        return SourceUnreachable(f"the standby has replayed the log {behind}", hint="it will catch up; try again later")
    return SourceChanged(
        f"the server's log is written {behind}: it was restored from an older copy, or a replica that was behind "
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


def _gone(server: ServerState, mark: LsnMark, slot: str) -> SourceChanged:
    return SourceChanged(
        f"slot {slot} is gone, and with it what the server kept for this pipeline: {_between(mark, server)}",
        hint=COPY_AGAIN,
    )


def _unusable(slot: SlotState, server: ServerState) -> InputError | None:
    if slot.plugin is None:
        wrong = "is a physical slot, which brings no changes"
    elif slot.database != server.database:
        wrong = f"belongs to database {slot.database}, and this is {server.database}"
    elif slot.plugin != _PLUGIN:
        wrong = f"decodes with {slot.plugin}, not with {_PLUGIN}"
    elif slot.two_phase:
        wrong = "brings transactions when they are prepared (two_phase), before anybody knows whether they commit"
    elif slot.temporary:
        wrong = "is temporary: it ends with the session that made it"
    elif slot.synced and server.standby:
        wrong = "is the primary's; this standby keeps a copy of it, to be read when it is promoted"
    else:
        return None
    return InputError(f"slot {slot.name} {wrong}", hint="write another name in slot:, and the first run creates it")


def _lost(slot: SlotState, server: ServerState, mark: LsnMark | None) -> SourceChanged:
    """Trying again does not mend it: the log that comes next is not there any more."""
    why = _WHY_LOST.get(slot.invalidated, slot.invalidated) or "the log that comes next was removed"
    if mark is None:
        return SourceChanged(
            f"slot {slot.name} is lost: {why}",
            hint=f"drop it, and the next run makes a new one: SELECT pg_drop_replication_slot('{slot.name}')",
        )
    return SourceChanged(f"slot {slot.name} is lost: {why}; {_between(mark, server)}", hint=COPY_AGAIN)


def _skipped(slot: SlotState, mark: LsnMark) -> SourceChanged | None:
    """Somebody read on, or the slot was dropped and made again: either way it begins behind the mark.

    A new slot always does: making it writes into the log.
    """
    if slot.confirmed is None or slot.confirmed <= mark.lsn:
        return None
    return SourceChanged(
        f"slot {slot.name} stands at {lsn_text(slot.confirmed)}, and the mark at {lsn_text(mark.lsn)}: "
        f"changes in the {size_text(slot.confirmed - mark.lsn)} between them cannot be read any more. Somebody else reads the slot, it was "
        "dropped and made again, or the mark was rewound",
        hint=f"use the slot for this pipeline only, and {COPY_AGAIN}",
    )


def _between(mark: LsnMark, server: ServerState) -> str:
    gap = size_text(max(server.lsn - mark.lsn, 0))
    return (
        f"the mark stands at {lsn_text(mark.lsn)}, the log is written up to {lsn_text(server.lsn)}, and changes in the "
        f"{gap} between them cannot be read any more"
    )
