"""The `objects` source: what is new in a bucket or a folder, by a ledger with a bookmark per object.

Windows are generations of the ledger. A look at the container compares its listing with the ledger and queues what is
new above the mark; cycles then read the queue, a generation at a time, and look again when it is empty. With a feed of
notifications most looks are at single objects (see listening.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.config.objects_source import ObjectsSource
from headwater.model.errors import BadPosition, SourceChanged
from headwater.model.ledger import FailedObject, Ledger
from headwater.model.marks import Mark, ObjectsMark
from headwater.model.progress import Lease
from headwater.model.rejects import Reject
from headwater.model.rows import Rows
from headwater.model.source import Plan, StreamPlan
from headwater.model.window import Window
from headwater.sources.objects.container import Container
from headwater.sources.objects.listening import Listened, Listening

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.objects.staging import FirstStaged

_LONGEST_WAIT = dt.timedelta(hours=6)


class WatchedObjects:
    """The objects of one container."""

    def __init__(
        self,
        settings: ObjectsSource,
        container: Container,
        ledger: Callable[[], Ledger],
        listening: Listening | None = None,
        *,
        cores: int,
    ) -> None:
        self._settings, self._container, self._ledger = settings, container, ledger
        self._listening, self._cores = listening, cores
        self._planned: tuple[Window, Sequence[pa.Table]] | None = None  # bookmarks that planning has seen, for one read

    @property
    def address(self) -> str:
        return self._container.address

    @property
    def stream(self) -> str:
        """By default the last part of the url that names a folder or a bucket."""
        return self._settings.stream or self.address.rstrip("/").rpartition("/")[2]

    @property
    def topic(self) -> str:
        """What its bookmarks have in common: the bucket, or the folder."""
        scheme, _, rest = self.address.partition("://")
        return rest.rstrip("/") if scheme == "file" else rest.partition("/")[0]

    def listing(self) -> Iterator[pa.RecordBatch]:
        """The objects that are there now."""
        return self._container.listing()

    def plan(self, mark: Mark | None) -> Plan:
        """What the next cycle would do; nothing is written."""
        known, ledger = self._known(mark), self._ledger()
        waiting = self._next(known, ledger)
        if waiting.window:
            return waiting
        from headwater.sources.objects.looking import would_stage  # noqa: PLC0415 - see `stage`

        looked = self._look(known, ledger)
        count, size, new = would_stage(looked.found, ledger, self._settings)
        if not count:
            return Plan(None, warnings=looked.warnings)
        window = Window(known, replace(known, generation=ledger.newest() + 1, count=known.count + new))
        return Plan(window, (StreamPlan(self.stream, window, None, _why(count, size)),), warnings=looked.warnings)

    def stage(self, mark: Mark | None, lease: Lease, run: str) -> Plan:
        known, ledger = self._known(mark), self._ledger()
        waiting = self._next(known, ledger)
        if waiting.window:
            return waiting
        # Whoever only opens a pipeline does not wait for Arrow.
        from headwater.sources.objects.staging import Pass, stage  # noqa: PLC0415

        looked = self._look(known, ledger)
        staged = stage(looked.found, Pass(ledger, lease, run), known, self._settings)
        if self._listening:
            self._listening.staged(looked)
        return looked.completed(self._next(known, ledger, staged), known)

    def _look(self, known: ObjectsMark, ledger: Ledger) -> Listened:
        """What is new: where the feed says, or everywhere."""
        if self._listening:
            return self._listening.listen(known, ledger)
        from headwater.sources.objects.looking import found  # noqa: PLC0415 - as above

        return Listened(found(self._container, ledger, self._settings))

    def _next(self, known: ObjectsMark, ledger: Ledger, staged: FirstStaged | None = None) -> Plan:
        """The first generation above the mark that holds anything; what was `staged` just now need not be asked for."""
        generation = ledger.waiting(known.generation)
        if generation is None:
            return Plan(None)
        from headwater.sources.objects.looking import next_window  # noqa: PLC0415 - as above

        pages = staged.of(generation) if staged else None
        if pages is None:
            pages = list(ledger.window(generation - 1, generation))
        found = next_window(pages, known, generation, self._container, self._settings)
        if not found:
            return self._next(replace(known, generation=generation), ledger)
        window = Window(known, found.end)
        self._planned = (window, found.pages)
        streams = (StreamPlan(self.stream, window, None, _why(found.objects, found.size)),)
        return Plan(window, streams, more=ledger.waiting(generation) is not None)

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        from headwater.sources.objects.reading import window_rows  # noqa: PLC0415 - as above

        start, end = self._known(window.start), self._known(window.end)
        if start.generation == end.generation:
            yield []  # only the feed has moved
            return
        planned, self._planned = self._planned, None
        if planned and planned[0] == window:
            pages = planned[1]
        else:
            pages = list(self._ledger().window(start.generation, end.generation))
        yield [window_rows(pages, self._settings, self._container, (start, end), stream=self.stream, cores=self._cores)]

    def postpone(self, window: Window, parts: Sequence[Reject], lease: Lease) -> None:  # noqa: ARG002 - a promise
        """Objects that could not be read: to be tried again, or set aside after the last try."""
        self._ledger().postpone(lease, [self._failed(part) for part in parts])

    def _failed(self, part: Reject) -> FailedObject:
        tries = int(part.more["tries"]) + 1
        if not part.again:
            return FailedObject(part.part, "aside", tries, part.reason)
        wait = min(self._settings.retry_after * 2 ** min(tries - 1, 30), _LONGEST_WAIT)
        return FailedObject(part.part, "failed", tries, part.reason, dt.datetime.now(dt.UTC) + wait)

    def bring_again(self, parts: Sequence[Reject], lease: Lease) -> int:
        """Objects that were set aside and are still as they were then."""
        ledger = self._ledger()
        known = {row["key"]: row for row in ledger.get([part.part for part in parts]).to_pylist()}
        again = [
            part.part
            for part in parts
            if part.part in known
            and known[part.part]["state"] in ("failed", "aside")
            and known[part.part]["etag"] == part.more["etag"]
        ]
        ledger.try_again(lease, again, dt.datetime.now(dt.UTC))
        return len(again)

    @contextmanager
    def replay(self, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:
        from headwater.sources.objects.decoding import reading_of  # noqa: PLC0415 - as above
        from headwater.sources.objects.replaying import replay  # noqa: PLC0415

        yield replay(rejects, reading_of(self._settings, self._known(mark).columns, self.stream), self._container)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `latest`, or a generation. What lies above it is read again, as it is then."""
        known = self._known(mark)
        newest = max(self._ledger().newest(), known.generation)
        words = {"start": 0, "earliest": 0, "latest": newest}
        word = text.strip()
        if word not in words and not word.isdecimal():
            raise BadPosition(
                f"{text!r} is no position among objects", hint=f"write start, latest or a generation up to {newest}"
            )
        generation = words[word] if word in words else int(word)
        if generation > newest:
            raise BadPosition(f"generation {generation} has not been", hint=f"the newest is {newest}")
        reached = max(known.reached, known.generation)
        return replace(known, generation=generation, turn=known.turn + 1, reached=reached)

    def close(self) -> None:
        """Nothing is kept open."""

    def _known(self, mark: Mark | None) -> ObjectsMark:
        if mark is None:
            return ObjectsMark(0)
        if not isinstance(mark, ObjectsMark):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is not one of a ledger of objects",
                hint="restore the former source settings, or rewind the pipeline: --to start",
            )
        return mark


def _why(objects: int, size: int) -> str:
    return f"{objects:,} object{'s' if objects != 1 else ''}, {size:,} bytes"
