"""What a feed of notifications is, wherever it comes from. It only says where to look, so nothing is lost by hearing
something twice, in any order, or of objects that are no longer there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.model.marks import Json
from headwater.sources.objects.feed_events import Event

Place = tuple[object, ...]  # of a notification in its feed: a partition and an offset, a file and its version
_SHOWN = 3


@dataclass(frozen=True)
class Told:
    """An event, and the notification that it stood in."""

    event: Event
    place: Place


@dataclass(frozen=True)
class Heard:
    """What a feed holds behind a position, or the first of it."""

    told: Sequence[Told]
    places: Sequence[Place]  # of all notifications that were read, also of those that say nothing
    count: int  # notifications behind the position, with those that were skipped
    more: bool  # there is more
    warnings: tuple[str, ...]
    position: Callable[[Collection[Place]], Json]  # behind all of them, but before these


class FeedGap(Exception):
    """The feed no longer holds what comes behind the position; says why."""


class Feed(Protocol):
    """Notifications in some order. Raises SourceUnreachable where it does not answer."""

    def end(self) -> Json:
        """The position behind all that it holds now."""

    def hear(self, position: Json, skip: Collection[Place]) -> Heard:
        """What comes behind the position, without the places to skip. Raises FeedGap."""


def unreadable(feed: str, problems: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The warning about notifications that say nothing: `problems` are where each is, and what is wrong with it."""
    if not problems:
        return ()
    shown = "; ".join(f"{where}: {why}" for where, why in problems[:_SHOWN])
    more = "; …" if len(problems) > _SHOWN else ""
    said = f"{len(problems):,} notification{'s' if len(problems) > 1 else ''} could not be understood"
    return (f"{feed}: {said}, and the objects are left to the next listing: {shown}{more}",)
