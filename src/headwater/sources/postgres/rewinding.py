"""Where an operator's words move the mark of a captured database."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from headwater.config.postgres_source import PostgresSource
from headwater.model.errors import BadPosition, UnknownName
from headwater.model.lsn import lsn_number, lsn_text
from headwater.model.lsn_mark import LsnMark
from headwater.sources.postgres.guard.guarded_slot import GuardedSlot
from headwater.sources.postgres.guard.judging import judge

_AGAIN = "somebody asked for another copy"


def position(text: str, mark: LsnMark | None, slot: GuardedSlot, settings: PostgresSource) -> LsnMark | None:
    """`start`, `snapshot`, `snapshot TABLE…`, `latest`, or a place in the log. Raises BadPosition, UnknownName."""
    words = shlex.split(text)
    if words[:1] == ["snapshot"] or text.strip() == "start":
        return _copied_again(mark, words[1:], slot, settings)
    if mark is None or not mark.slot:
        raise BadPosition(
            f"{text!r}: nothing has been copied yet, so that there is no place to go to", hint="run the pipeline first"
        )
    if text.strip() == "latest":
        return replace(slot.here(mark), turn=mark.turn + 1)
    return _place(text.strip(), mark, slot)


def _copied_again(
    mark: LsnMark | None, streams: Sequence[str], slot: GuardedSlot, settings: PostgresSource
) -> LsnMark | None:
    """All tables, or some of them; where the slot or the server is another, all of them, through a slot that begins anew."""
    if mark is None:
        return None
    unknown = [stream for stream in streams if stream not in mark.tables]
    if unknown:
        raise UnknownName(f"no table {unknown[0]} is captured", hint=f"there are: {', '.join(sorted(mark.tables))}")
    state = slot.state(mark)
    server = state.server
    broken = judge(state, mark if mark.slot else None, settings).error
    if broken or not mark.slot:
        # Places of another log order nothing against those that have landed: all of them come after.
        other = (server.cluster, server.timeline) != (mark.cluster, mark.timeline) or server.lsn < mark.lsn
        every = {stream: replace(table, stale=_AGAIN) for stream, table in mark.tables.items()}
        era = mark.era + 1 if other and mark.cluster else mark.era
        return LsnMark(0, turn=mark.turn + 1, era=era, cluster=mark.cluster, timeline=mark.timeline, tables=every)
    tables = {
        stream: replace(table, stale=_AGAIN) if stream in streams or not streams else table
        for stream, table in mark.tables.items()
    }
    return replace(mark, turn=mark.turn + 1, tables=tables, labels=())


def _place(text: str, mark: LsnMark, slot: GuardedSlot) -> LsnMark:
    try:
        lsn = lsn_number(text)
    except ValueError as error:
        raise BadPosition(str(error), hint="write snapshot, snapshot TABLE, latest, or a place as 0/16B3748") from None
    kept = slot.kept_from()
    if not kept <= lsn <= mark.lsn:
        raise BadPosition(
            f"{text}: the slot holds the log from {lsn_text(kept)}, and the mark stands at {lsn_text(mark.lsn)}",
            hint="write a place between the two; copy the tables again for what is older: --to snapshot",
        )
    return replace(mark, lsn=lsn, turn=mark.turn + 1, commit=None, labels=())
