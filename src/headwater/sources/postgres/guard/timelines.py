"""Where the server's timelines were left: after a failover or a restore the log branches, and a mark may be on a dead branch.

SQL does not show it to an ordinary role; a replication connection, which whoever may use a slot can open, does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import psycopg

from headwater.model.errors import SourceUnreachable
from headwater.model.lsn import lsn_number
from headwater.model.lsn_mark import LsnMark
from headwater.model.secret import Secret, masked
from headwater.sources.postgres.guard.slot_state import GuardState


def with_timelines(state: GuardState, url: Secret, mark: LsnMark | None) -> GuardState:
    """The same state, with the history of timelines where the mark needs it; in the common case nothing is asked."""
    timeline = state.server.timeline
    if mark is None or mark.timeline in (0, timeline) or mark.timeline > timeline:
        return state
    return replace(state, server=replace(state.server, timelines_left=timelines_left(url, timeline)))


def timelines_left(url: Secret, timeline: int) -> Mapping[int, int]:
    """Each earlier timeline on the way to this one, and the place where it was left. Raises SourceUnreachable."""
    try:
        with psycopg.connect(url.reveal(), autocommit=True, replication="database") as connection:
            ((_, content),) = connection.execute(f"TIMELINE_HISTORY {timeline:d}").fetchall()
    except psycopg.Error as error:
        said = masked(" ".join(str(error).split()))
        raise SourceUnreachable(
            f"{masked(url.reveal())}: the history of timeline {timeline} cannot be read: {said}",
            hint="let the role open replication connections: ALTER ROLE … REPLICATION, and a line in pg_hba.conf",
        ) from None
    return parse_history(content if isinstance(content, str) else bytes(content).decode())


def parse_history(content: str) -> dict[int, int]:
    """Lines of timeline, place and reason; comments begin with #."""
    lines = (line.split() for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return {int(words[0]): lsn_number(words[1]) for words in lines}
