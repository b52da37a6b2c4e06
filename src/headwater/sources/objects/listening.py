"""Between two listings, looks where a feed of notifications says; and decides when it is time to list everything."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from headwater.config.objects_source import ObjectsSource
from headwater.model.ledger import Ledger
from headwater.model.marks import Json, ObjectsMark
from headwater.model.source import Plan
from headwater.model.window import Window
from headwater.progress.clock import Clock
from headwater.sources.objects.container import Container, ObjectVersion
from headwater.sources.objects.feed import Feed, FeedGap, Heard, Place, Told

if TYPE_CHECKING:
    from headwater.sources.objects.comparing import Difference

_WORTH_KEEPING = 1_000  # notifications: fewer are heard again, which is cheaper than a window without rows
_KEPT_PLACES = 100_000
_LOOKS_AT_ONCE = 16
_CLOCKS_DIFFER = 10.0  # seconds


@dataclass(frozen=True)
class FeedState:
    """What the mark keeps of a feed. Everything before the position is in the ledger, or was seen to be nothing new."""

    position: Json
    listed: dt.datetime  # when everything was last listed
    of: str  # what was listed: other settings of the source select other objects
    passed_young: bool = False  # the position may be past objects that were too young for that listing

    def to_json(self) -> Json:
        return {**vars(self), "listed": self.listed.isoformat()}

    @classmethod
    def of_mark(cls, mark: ObjectsMark) -> FeedState | None:
        """None where there is none, or none that this version can read: then everything is listed, and nothing is lost."""
        try:
            return cls(**{**mark.feed, "listed": dt.datetime.fromisoformat(mark.feed["listed"])})
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class Listened:
    """What there is to stage, and how the mark goes on once it is staged."""

    found: Iterable[Difference]
    state: FeedState | None = None  # None: there is no feed
    places: Sequence[Place] = ()  # that are done with then
    worth_keeping: bool = False  # also without anything new
    more: bool = False
    warnings: tuple[str, ...] = ()

    def completed(self, plan: Plan, mark: ObjectsMark) -> Plan:
        """The next window, with the feed's position; or one that only moves that (its generation stays: it has no rows)."""
        if self.state is None:
            return plan
        start, end = (plan.window.start, plan.window.end) if plan.window else (mark, mark)
        if isinstance(end, ObjectsMark) and (plan.window or self.worth_keeping):
            window = Window(start, replace(end, feed=self.state.to_json()))
            plan = replace(plan, window=window, streams=tuple(replace(one, window=window) for one in plan.streams))
        return replace(plan, more=plan.more or self.more, warnings=(*plan.warnings, *self.warnings))


class Listening:
    """One source's ear. It remembers what was done with since the mark's position, so that a poll repeats no look."""

    def __init__(self, feed: Feed, container: Container, settings: ObjectsSource, clock: Clock) -> None:
        self._feed, self._container, self._settings = feed, container, settings
        self._clock = clock
        self._done: set[Place] = set()
        chosen = settings.model_dump(mode="json", include={"url", "pattern", "ignore", "recursive"})
        self._of = blake2b(json.dumps(chosen, sort_keys=True).encode(), digest_size=8).hexdigest()

    def listen(self, mark: ObjectsMark, ledger: Ledger) -> Listened:
        """What is new, as far as is known: by a listing if it is time for one, otherwise by the feed."""
        state = FeedState.of_mark(mark)
        if state is None or state.of != self._of:
            return self._list_anew(ledger)
        if self._clock() >= state.listed + self._pause(state):
            return self._list(ledger, replace(state, listed=self._clock(), passed_young=False))
        try:
            heard = self._feed.hear(state.position, self._done)
        except FeedGap as gap:
            return self._list_anew(ledger, f"the feed has a gap, so everything is listed: {gap}")
        return self._look(heard, ledger, state)

    def staged(self, listened: Listened) -> None:
        """It is in the ledger now."""
        if len(self._done) + len(listened.places) > _KEPT_PLACES:
            self._done = set()
        self._done.update(listened.places)

    def _pause(self, state: FeedState) -> dt.timedelta:
        """Between two listings; the first one cannot see what is too young, and the feed was not heard before it."""
        every = self._settings.listing_every
        return min(every, self._settings.min_age) if state.passed_young else every

    def _list_anew(self, ledger: Ledger, *warnings: str) -> Listened:
        """The feed is heard from now on."""
        self._done = set()
        # Before the listing: what happens during it may be missing from it, and is heard of.
        position = self._feed.end()
        young = bool(self._settings.min_age)
        return self._list(ledger, FeedState(position, self._clock(), self._of, young), *warnings)

    def _list(self, ledger: Ledger, state: FeedState, *warnings: str) -> Listened:
        from headwater.sources.objects.looking import found  # noqa: PLC0415 - whoever only opens a pipeline needs no Arrow

        differences = found(self._container, ledger, self._settings)
        return Listened(differences, state, worth_keeping=True, warnings=warnings)

    def _look(self, heard: Heard, ledger: Ledger, state: FeedState) -> Listened:
        of_keys = self._ours(heard.told)
        versions = self._versions(list(of_keys))
        young = {key for key, told in of_keys.items() if versions[key] is None and self._may_be_too_young(told)}
        held = {one.place for key in young for one in of_keys[key]}
        known = {key: version for key, version in versions.items() if key not in young}
        return Listened(
            found=self._differences(known, ledger),
            state=replace(state, position=heard.position(held)),
            places=[place for place in heard.places if place not in held],
            worth_keeping=not held and (heard.more or heard.count >= _WORTH_KEEPING),
            more=not held and heard.more,
            warnings=heard.warnings,
        )

    def _differences(self, versions: Mapping[str, ObjectVersion | None], ledger: Ledger) -> Iterable[Difference]:
        if not versions:
            return ()
        from headwater.sources.objects.comparing import differences_at  # noqa: PLC0415 - as above

        return differences_at(versions, ledger)

    def _ours(self, told: Sequence[Told]) -> dict[str, list[Told]]:
        """Events by key; others' buckets and prefixes are not even looked at."""
        scheme, _, rest = self._container.address.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme == "file":
            bucket, prefix = rest.rstrip("/").rpartition("/")[2], ""
        of_keys: dict[str, list[Told]] = {}
        for one in told:
            if one.event.bucket == bucket and one.event.key.startswith(prefix):
                of_keys.setdefault(one.event.key, []).append(one)
        return of_keys

    def _versions(self, keys: Sequence[str]) -> dict[str, ObjectVersion | None]:
        """What is there now."""
        if len(keys) <= 1:
            return {key: self._container.look(key) for key in keys}
        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            return dict(zip(keys, pool.map(self._container.look, keys), strict=True))

    def _may_be_too_young(self, told: Sequence[Told]) -> bool:
        """Nothing is shown of an object below `min_age`, nor of one that is gone: only time tells them apart."""
        if not self._settings.min_age:
            return False
        wait = self._settings.min_age.total_seconds() + _CLOCKS_DIFFER
        now = self._clock().timestamp()
        return any(not one.event.removed and (one.event.at or 0) > now - wait for one in told)
