"""Polls the feed of notifications that the settings name between two listings, and decides when to list everything."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.bookmarks import Ledger
from headwater.model.position.marks import Json, ObjectsMark
from headwater.model.position.window import Window
from headwater.model.protocols.source import Plan
from headwater.progress.record_store import Clock, wall_clock
from headwater.sources.objects.notifications.feed import Feed, FeedEvent, FeedGap, FeedPage, NotificationId
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container, ObjectVersion
from headwater.storage.open import open_container

if TYPE_CHECKING:
    from headwater.sources.objects.listing_diff import Difference

_MAX_PROCESSED = 100_000
_PARALLEL_STATS = 16
_CLOCK_SKEW_SECONDS = 10.0


@dataclass(frozen=True)
class FeedState:
    """What the mark holds of a feed. Everything before the position is in the ledger, or was not new."""

    position: Json
    listed: dt.datetime  # when everything was listed last
    of: str  # digest of the settings that select objects: with others everything is listed
    passed_young: bool = False  # the position may be past objects that were too young for the last listing

    def to_json(self) -> Json:
        return {**vars(self), "listed": self.listed.isoformat()}

    @classmethod
    def of_mark(cls, mark: ObjectsMark) -> FeedState | None:
        """None without a readable state: then everything is listed, and nothing is lost."""
        try:
            return cls(**{**mark.feed, "listed": dt.datetime.fromisoformat(mark.feed["listed"])})
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class PollResult:
    """What to stage, and how the mark advances once it is staged."""

    differences: Iterable[Difference]
    state: FeedState | None = None  # None: without a feed
    ids: Sequence[NotificationId] = ()  # processed once the differences are staged
    save_state: bool = False  # even if nothing is new
    more: bool = False
    warnings: tuple[str, ...] = ()

    def complete(self, plan: Plan, mark: ObjectsMark) -> Plan:
        """The plan with the feed's position in its window; the window is without rows if only the position advances."""
        if self.state is None:
            return plan
        start, end = (plan.window.start, plan.window.end) if plan.window else (mark, mark)
        if isinstance(end, ObjectsMark) and (plan.window or self.save_state):
            window = Window(start, replace(end, feed=self.state.to_json()))
            plan = replace(
                plan, window=window, streams=tuple(replace(stream, window=window) for stream in plan.streams)
            )
        return replace(plan, more=plan.more or self.more, warnings=(*plan.warnings, *self.warnings))


class FeedPoller:
    """The feed of one source. Notifications processed since the mark's position are remembered, not checked again."""

    def __init__(
        self,
        feed: Feed,
        container: Container,
        settings: ObjectsSourceSettings,
        clock: Clock,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._feed, self._container, self._settings = feed, container, settings
        self._clock, self._tuning = clock, tuning
        self._processed: set[NotificationId] = set()
        options = settings.model_dump(mode="json", include={"url", "pattern", "ignore", "recursive"})
        self._selection = blake2b(json.dumps(options, sort_keys=True).encode(), digest_size=8).hexdigest()

    def poll(self, mark: ObjectsMark, ledger: Ledger) -> PollResult:
        """By a listing if one is due, otherwise by the feed."""
        state = FeedState.of_mark(mark)
        if state is None or state.of != self._selection:
            return self._list_anew(ledger)
        if self._clock() >= state.listed + self._listing_interval(state):
            return self._list(ledger, replace(state, listed=self._clock(), passed_young=False))
        try:
            page = self._feed.read_after(state.position, self._processed)
        except FeedGap as gap:
            return self._list_anew(ledger, f"the feed has a gap; everything is listed: {gap}")
        return self._check_keys(page, ledger, state)

    def confirm(self, result: PollResult) -> None:
        """The differences are in the ledger now."""
        if len(self._processed) + len(result.ids) > _MAX_PROCESSED:
            self._processed = set()
        self._processed.update(result.ids)

    def _listing_interval(self, state: FeedState) -> dt.timedelta:
        """Shorter after the first listing, which cannot see young objects; the feed begins only with it."""
        every = self._settings.listing_every
        return min(every, self._settings.min_age) if state.passed_young else every

    def _list_anew(self, ledger: Ledger, *warnings: str) -> PollResult:
        """List everything; read the feed from here on."""
        self._processed = set()
        # Before the listing: it may miss what happens meanwhile, and the feed does not.
        position = self._feed.end()
        young = bool(self._settings.min_age)
        return self._list(ledger, FeedState(position, self._clock(), self._selection, young), *warnings)

    def _list(self, ledger: Ledger, state: FeedState, *warnings: str) -> PollResult:
        from headwater.sources.objects.staging import find_differences

        differences = find_differences(self._container, ledger, self._settings, self._tuning)
        return PollResult(differences, state, save_state=True, warnings=warnings)

    def _check_keys(self, page: FeedPage, ledger: Ledger, state: FeedState) -> PollResult:
        by_key = self._events_by_key(page.events)
        versions = self._versions(list(by_key))
        young = {key for key, events in by_key.items() if versions[key] is None and self._may_be_too_young(events)}
        retained = {event.notification for key in young for event in by_key[key]}
        checked = {key: version for key, version in versions.items() if key not in young}
        return PollResult(
            differences=self._differences(checked, ledger),
            state=replace(state, position=page.position(retained)),
            ids=[id_ for id_ in page.ids if id_ not in retained],
            save_state=not retained and (page.more or page.count >= self._tuning.saved_notifications),
            more=not retained and page.more,
            warnings=page.warnings,
        )

    def _differences(self, versions: Mapping[str, ObjectVersion | None], ledger: Ledger) -> Iterable[Difference]:
        if not versions:
            return ()
        from headwater.sources.objects.listing_diff import diff_keys

        return diff_keys(versions, ledger)

    def _events_by_key(self, events: Sequence[FeedEvent]) -> dict[str, list[FeedEvent]]:
        """Without events of other buckets and prefixes."""
        scheme, _, rest = self._container.address.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme == "file":
            bucket, prefix = rest.rstrip("/").rpartition("/")[2], ""
        by_key: dict[str, list[FeedEvent]] = {}
        for event in events:
            if event.event.bucket == bucket and event.event.key.startswith(prefix):
                by_key.setdefault(event.event.key, []).append(event)
        return by_key

    def _versions(self, keys: Sequence[str]) -> dict[str, ObjectVersion | None]:
        """The current version of each key."""
        if len(keys) <= 1:
            return {key: self._container.stat(key) for key in keys}
        with ThreadPoolExecutor(_PARALLEL_STATS) as pool:
            return dict(zip(keys, pool.map(self._container.stat, keys), strict=True))

    def _may_be_too_young(self, events: Sequence[FeedEvent]) -> bool:
        """The container shows neither young objects nor deleted ones: only time tells them apart."""
        if not self._settings.min_age:
            return False
        wait = self._settings.min_age.total_seconds() + _CLOCK_SKEW_SECONDS
        now = self._clock().timestamp()
        return any(not event.event.removed and (event.event.at or 0) > now - wait for event in events)


def open_feed(
    settings: ObjectsSourceSettings,
    container: Container,
    folder: Path,
    s3: S3Settings,
    *,
    clock: Clock = wall_clock,
    tuning: Tuning = DEFAULT,
) -> FeedPoller | None:
    """None: the settings have no feed. Relative paths are relative to `folder`. Sends no request."""
    feed = _feed(settings, folder, s3)
    return FeedPoller(feed, container, settings, clock, tuning) if feed else None


def _feed(settings: ObjectsSourceSettings, folder: Path, s3: S3Settings) -> Feed | None:
    if settings.feed is None:
        return None
    if settings.feed.kafka:
        from headwater.sources.objects.notifications.kafka import TopicFeed

        return TopicFeed(settings.feed.kafka, folder)
    from headwater.sources.objects.notifications.folder import FolderFeed

    # In the same account as the objects, and with the same default `ignore`.
    files = ObjectsSourceSettings(
        url=settings.feed.folder or "", s3=settings.s3, storage_options=settings.storage_options
    )
    return FolderFeed(open_container(files, folder, s3))
