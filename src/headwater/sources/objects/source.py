"""The `objects` source: new objects of a bucket or a folder, by a ledger with a bookmark per object.

Windows are generations of the ledger. A poll compares the container's listing with the ledger and stages new objects above
the mark; cycles read this queue, one generation at a time, and poll again when it is empty. With a feed of notifications
most polls check single objects (see notifications/poller.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.bookmarks import FailedObject, Ledger
from headwater.model.errors import BadPosition, SourceChanged
from headwater.model.position.marks import Mark, ObjectsMark
from headwater.model.position.window import Window
from headwater.model.progress import Lease
from headwater.model.protocols.source import Claim, Plan, StreamPlan
from headwater.model.rows import Reject, Rows
from headwater.sources.objects.notifications.poller import FeedPoller, PollResult
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.objects.staging import FirstGeneration

_MAX_RETRY_INTERVAL = dt.timedelta(hours=6)


class ObjectsSource:
    """The objects of one container."""

    def __init__(
        self,
        settings: ObjectsSourceSettings,
        container: Container,
        ledger: Callable[[], Ledger],
        poller: FeedPoller | None = None,
        *,
        cores: int,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._settings, self._container, self._ledger = settings, container, ledger
        self._poller, self._cores, self._tuning = poller, cores, tuning
        self._planned: tuple[Window, Sequence[pa.Table]] | None = None  # bookmarks of the planned window, for one read

    @property
    def address(self) -> str:
        return self._container.address

    @property
    def stream(self) -> str:
        """By default the name of the folder or bucket in the url."""
        return self._settings.stream or self.address.rstrip("/").rpartition("/")[2]

    @property
    def topic(self) -> str:
        """The bucket or the folder of the bookmarks."""
        scheme, _, rest = self.address.partition("://")
        return rest.rstrip("/") if scheme == "file" else rest.partition("/")[0]

    def listing(self) -> Iterator[pa.RecordBatch]:
        """The current objects."""
        return self._container.listing()

    def plan(
        self,
        mark: Mark | None,
        *,
        claim: Claim | None = None,
        skip: frozenset[str] = frozenset(),  # noqa: ARG002 - one stream, or one mark for all
    ) -> Plan:
        """Without a claim: what the next cycle would do; writes nothing."""
        return self._preview(mark) if claim is None else self._stage(mark, claim)

    def _preview(self, mark: Mark | None) -> Plan:
        known, ledger = self._known(mark), self._ledger()
        queued = self._next(known, ledger)
        if queued.window:
            return queued
        from headwater.sources.objects.staging import count_changes

        result = self._poll(known, ledger)
        count, size, new = count_changes(result.differences, ledger, self._settings)
        if not count:
            return Plan(None, warnings=result.warnings)
        window = Window(known, replace(known, generation=ledger.newest() + 1, count=known.count + new))
        return Plan(window, (StreamPlan(self.stream, window, None, _describe(count, size)),), warnings=result.warnings)

    def _stage(self, mark: Mark | None, claim: Claim) -> Plan:
        known, ledger = self._known(mark), self._ledger()
        queued = self._next(known, ledger)
        if queued.window:
            return queued
        # Imported here: opening a pipeline does not wait for Arrow.
        from headwater.sources.objects.staging import StagingRun, stage

        result = self._poll(known, ledger)
        staging = StagingRun(ledger, claim.lease, claim.run)
        staged = stage(result.differences, staging, known, self._settings, self._tuning)
        if self._poller:
            self._poller.confirm(result)
        return result.complete(self._next(known, ledger, staged), known)

    def _poll(self, known: ObjectsMark, ledger: Ledger) -> PollResult:
        if self._poller:
            return self._poller.poll(known, ledger)
        from headwater.sources.objects.staging import find_differences

        return PollResult(find_differences(self._container, ledger, self._settings, self._tuning))

    def _next(self, known: ObjectsMark, ledger: Ledger, staged: FirstGeneration | None = None) -> Plan:
        """The first generation above the mark that has objects; `staged` saves a read from the ledger."""
        generation = ledger.waiting(known.generation)
        if generation is None:
            return Plan(None)
        from headwater.sources.objects.staging import next_window

        pages = staged.pages(generation) if staged else None
        if pages is None:
            pages = list(ledger.window(generation - 1, generation))
        queued = next_window(pages, known, generation, self._container, self._settings, tuning=self._tuning)
        if not queued:
            return self._next(replace(known, generation=generation), ledger)
        window = Window(known, queued.end)
        self._planned = (window, queued.pages)
        streams = (StreamPlan(self.stream, window, None, _describe(queued.objects, queued.size)),)
        return Plan(window, streams, more=ledger.waiting(generation) is not None)

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        from headwater.sources.objects.rows import window_rows

        start, end = self._known(window.start), self._known(window.end)
        if start.generation == end.generation:
            yield []  # only the feed has advanced
            return
        planned, self._planned = self._planned, None
        if planned and planned[0] == window:
            pages = planned[1]
        else:
            pages = list(self._ledger().window(start.generation, end.generation))
        yield [
            window_rows(
                pages,
                self._settings,
                self._container,
                (start, end),
                stream=self.stream,
                cores=self._cores,
                tuning=self._tuning,
            )
        ]

    def postpone(self, window: Window, parts: Sequence[Reject], lease: Lease) -> None:  # noqa: ARG002 - a promise
        """Objects that could not be read: retried later, or rejected after the last try."""
        self._ledger().postpone(lease, [self._failed(reject) for reject in parts])

    def _failed(self, reject: Reject) -> FailedObject:
        tries = int(reject.more["tries"]) + 1
        if not reject.again:
            return FailedObject(reject.part, "aside", tries, reject.reason)
        wait = min(self._settings.retry_after * 2 ** min(tries - 1, 30), _MAX_RETRY_INTERVAL)
        return FailedObject(reject.part, "failed", tries, reject.reason, dt.datetime.now(dt.UTC) + wait)

    def bring_again(self, parts: Sequence[Reject], lease: Lease) -> int:
        """Retry rejected objects whose version has not changed."""
        ledger = self._ledger()
        bookmarks = {row["key"]: row for row in ledger.get([reject.part for reject in parts]).to_pylist()}
        keys = [
            reject.part
            for reject in parts
            if reject.part in bookmarks
            and bookmarks[reject.part]["state"] in ("failed", "aside")
            and bookmarks[reject.part]["etag"] == reject.more["etag"]
        ]
        ledger.try_again(lease, keys, dt.datetime.now(dt.UTC))
        return len(keys)

    @contextmanager
    def replay(self, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:
        from headwater.sources.objects.content import ReadSettings
        from headwater.sources.objects.rows import replay

        yield replay(rejects, ReadSettings.of(self._settings, self._known(mark).state, self.stream), self._container)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `latest`, or a generation. Objects above it are read again, in their current versions."""
        known = self._known(mark)
        newest = max(self._ledger().newest(), known.generation)
        words = {"start": 0, "earliest": 0, "latest": newest}
        word = text.strip()
        if word not in words and not word.isdecimal():
            raise BadPosition(
                f"{text!r} is not a position of an objects source",
                hint=f"use start, latest or a generation up to {newest}",
            )
        generation = words[word] if word in words else int(word)
        if generation > newest:
            raise BadPosition(f"generation {generation} does not exist (newest: {newest})")
        reached = max(known.reached, known.generation)
        return replace(known, generation=generation, turn=known.turn + 1, reached=reached)

    def close(self) -> None:
        """Keeps nothing open."""

    def _known(self, mark: Mark | None) -> ObjectsMark:
        if mark is None:
            return ObjectsMark(0)
        if not isinstance(mark, ObjectsMark):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is not the mark of an objects source",
                hint="restore the former source settings, or rewind the pipeline: --to start",
            )
        return mark


def _describe(objects: int, size: int) -> str:
    return f"{objects:,} object{'s' if objects != 1 else ''}, {size:,} bytes"
