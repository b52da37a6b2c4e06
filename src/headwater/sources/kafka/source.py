"""The `kafka` source: topics as streams, one mark over all of them."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.sources.kafka import KafkaSourceSettings, client_options, parse_moment
from headwater.model.errors import HeadwaterError, InputError, SourceChanged, SourceUnreachable, is_of_one_stream
from headwater.model.position.marks import Mark, OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.position.window import Window
from headwater.model.protocols.source import Claim, Lag, Plan, StreamPlan
from headwater.model.rows import Reject, Rows
from headwater.sources.kafka.client import Broker, Log, Partition, Topic
from headwater.sources.kafka.offsets import apart, begins, changed, ends, gaps, mark_of, since

if TYPE_CHECKING:
    from headwater.sources.kafka.client import OffsetRange, Reading

_MAX_INFERENCE_ROWS = {"json": 500_000, "debezium": 1_000_000}
_LAG_TIMEOUT = dt.timedelta(seconds=5)


class KafkaSource:
    """Topics of one cluster. Nothing is kept open between plans but the connection."""

    def __init__(self, settings: KafkaSourceSettings, folder: Path, cores: int) -> None:
        self._settings, self._folder, self._cores = settings, folder, cores
        self._options = client_options(settings, folder)
        self._broker = Broker(self._options, settings.timeout.total_seconds(), settings.isolation)
        self._planned: Window | None = None

    @property
    def address(self) -> str:
        return self._broker.address

    def plan(
        self,
        mark: Mark | None,
        *,
        claim: Claim | None = None,  # noqa: ARG002 - a look and a plan are the same here
        skip: frozenset[str] = frozenset(),
    ) -> Plan:
        self._planned = None
        known = self._offsets(mark)
        topics = {name: topic for name, topic in self._topics(known).items() if name not in skip}
        if known is None:
            begin, pinned = self._first(topics), self._settings.start != "earliest"
        else:
            topics = dict(self._checked(known, topics, skip))
            begin, pinned = begins(known, topics), False
        end = ends(begin, topics, self.max_rows)
        if end == begin and not pinned:
            return Plan(None)
        return self._plan(known, topics, begin, end)

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        written = self._settings.topic_names
        return apart(window, streams) if len(written) > 1 or any(map(_is_pattern, written)) else None

    def _plan(
        self,
        known: OffsetsMark | None,
        topics: Mapping[str, Topic],
        begin: Mapping[Partition, int],
        end: Mapping[Partition, int],
    ) -> Plan:
        # The window says where it begins, also on a first run: a retry must not depend on `start` (G5).
        start, stop = mark_of(begin, topics), mark_of(end, topics)
        before, refused = known or OffsetsMark({}), dict[str, HeadwaterError]()
        window = Window(before.join(start), self._with_columns(before, start, before.join(stop), refused))
        if refused:
            window = apart(window, frozenset(refused))[1]
        streams = tuple(
            StreamPlan(name, _window_of(name, start, stop), count, _why(name, begin, end))
            for name in sorted(topics)
            if (count := _count(name, begin, end)) and name not in refused
        )
        if refused and not streams and known:
            return Plan(None, refused=refused)
        self._planned = window
        more = any(
            topics[name].partitions[number].end > at for (name, number), at in end.items() if name not in refused
        )
        return Plan(window, streams, more=more, refused=refused)

    @property
    def _infers_columns(self) -> bool:
        """Events say at least which columns are their key."""
        settings = self._settings
        return settings.format == "debezium" or (settings.format == "json" and settings.schema is None)

    @property
    def max_rows(self) -> int | None:
        """The most messages of a window. Inference reads every one of them, so a window must be small."""
        return self._settings.max_rows or (_MAX_INFERENCE_ROWS[self._settings.format] if self._infers_columns else None)

    def _with_columns(
        self, before: OffsetsMark, start: OffsetsMark, end: OffsetsMark, refused: dict[str, HeadwaterError]
    ) -> OffsetsMark:
        """The end of the window with the columns of its messages, where no schema is declared.

        A topic whose columns are refused is named, if others can continue.
        """
        if not self._infers_columns:
            return end
        from headwater.sources.kafka.rows import ranges, reading_of

        window = Window(before.join(start), end)
        reading, streams = reading_of(self._settings, self._options), dict(before.streams)
        for topic, wanted in groupby(ranges(window), key=lambda each: each.topic):
            try:
                state = self._state_after(topic, streams.get(topic, StreamState()), list(wanted), reading)
                if state != StreamState():
                    streams[topic] = state
            except HeadwaterError as error:
                if self.apart(window, frozenset()) is None or not is_of_one_stream(error):
                    raise
                refused[topic] = error
        return replace(end, streams=streams)

    def _state_after(
        self, topic: str, known: StreamState, wanted: Sequence[OffsetRange], reading: Reading
    ) -> StreamState:
        if self._settings.format == "debezium":
            from headwater.sources.kafka.debezium import state_after

            return state_after(topic, known, wanted, reading, self._settings)
        from headwater.sources.kafka.decoder import columns_after

        reserved = set(self._settings.metadata_columns.values())
        return replace(known, columns=columns_after({topic: known.columns}, wanted, reading, reserved)[topic])

    @contextmanager
    def read(self, window: Window) -> Iterator[Sequence[Rows]]:
        if window != self._planned:
            self._still_there(window)
        self._planned = None
        yield self._rows(window)

    @contextmanager
    def replay(self, rejects: Sequence[Reject], mark: Mark) -> Iterator[Sequence[Rows]]:
        from headwater.sources.kafka.rows import replay_rows

        known = self._offsets(mark)
        yield replay_rows(self._settings, self._folder, rejects, known.streams if known else {})

    def _rows(self, window: Window) -> Sequence[Rows]:
        from headwater.sources.kafka.rows import window_rows

        return window_rows(self._settings, self._folder, self._cores, self._options, window)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        """`start`, `earliest`, `latest`, `skip-gap`, a moment, `topic:partition=offset,…`, or JSON."""
        from headwater.sources.kafka.offsets import position

        if text.strip() == "start":
            return None
        known = mark if isinstance(mark, OffsetsMark) else OffsetsMark({})
        ours = self._ours(known)
        topics = self._with_open_transactions(ours, self._topics(ours))
        moved = position(text, ours, self._broker, topics)
        # What the settings do not name now stays where it is.
        others = {name: offsets for name, offsets in known.topics.items() if name not in ours.topics}
        ids = {**{name: known.ids[name] for name in others if name in known.ids}, **moved.ids}
        return OffsetsMark({**others, **moved.topics}, ids, known.streams)

    def lag(self, mark: Mark | None) -> Sequence[Lag]:
        """Messages between the mark and the logs' ends, and the age of the oldest of them."""
        from headwater.sources.kafka.offsets import measure_lag

        brief = self._settings.model_copy(update={"timeout": min(self._settings.timeout, _LAG_TIMEOUT)})
        impatient = KafkaSource(brief, self._folder, self._cores)
        known = self._offsets(mark)
        topics = impatient._topics(known)
        begin = begins(self._ours(known), topics) if known else impatient._first(topics)
        return measure_lag(self._options, self._settings.isolation, topics, begin)

    def acknowledge(self, mark: Mark) -> None:
        """Commit the mark to the consumer group, if the settings name one."""
        if self._settings.group and isinstance(mark, OffsetsMark):
            from headwater.sources.kafka.client import commit

            commit(self._options, self._settings.group, mark, self._settings.timeout.total_seconds())

    def close(self) -> None:
        """The connection ends with this object."""

    def _offsets(self, mark: Mark | None) -> OffsetsMark | None:
        if mark is not None and not isinstance(mark, OffsetsMark):
            raise SourceChanged(
                f"{self.address}: the stored mark ({mark}) is not one of Kafka's offsets",
                hint="restore the former source settings, or rewind the pipeline: --to start, earliest or latest",
            )
        return mark

    def _topics(self, mark: OffsetsMark | None) -> Mapping[str, Topic]:
        """What the settings name, as the brokers know it."""
        written = self._settings.topic_names
        patterns = [name for name in written if _is_pattern(name)]
        names = [name for name in written if name not in patterns]
        known = list(self._ours(mark).topics) if mark else []
        if patterns:
            names += [name for name in self._broker.names() if any(fnmatch.fnmatchcase(name, p) for p in patterns)]
            # A topic of the mark that is gone must be missed, although no pattern finds it any more (G9).
            names += known
        topics = self._broker.topics(names)
        missing = [name for name in written if name not in patterns and name not in topics and name not in known]
        if missing or not (topics or known):
            raise self._unknown(missing or list(written))
        return topics

    def _unknown(self, names: Sequence[str]) -> SourceUnreachable:
        """Not an error of the settings alone: a topic may be made by its first producer, so looking again makes sense."""
        there = self._broker.names()
        existing = f"there are {', '.join(there[:10])}{', …' if len(there) > 10 else ''}" if there else "there are none"  # noqa: PLR2004
        return SourceUnreachable(
            f"{self.address}: no topic {' or '.join(names)} that we may see",
            hint=f"{existing}; create it, or grant the right to describe it; a running pipeline looks again",
        )

    def _checked(
        self, mark: OffsetsMark, topics: Mapping[str, Topic], without: frozenset[str] = frozenset()
    ) -> Mapping[str, Topic]:
        """The topics, unless the mark and they do not fit together (G9)."""
        ours = self._ours(mark)
        ours = OffsetsMark({name: offsets for name, offsets in ours.topics.items() if name not in without}, ours.ids)
        seen = self._with_open_transactions(ours, topics)
        if mismatches := gaps(ours, seen):
            raise changed(self.address, mismatches)
        return seen

    def _with_open_transactions(self, mark: OffsetsMark, topics: Mapping[str, Topic]) -> Mapping[str, Topic]:
        """A mark past the last stable offset is fine where uncommitted messages were read before."""
        ahead = [
            (name, number)
            for name, topic in topics.items()
            for number, log in topic.partitions.items()
            if mark.topics.get(name, {}).get(number, 0) > log.end
        ]
        real = self._broker.ends_with_open_transactions(ahead) if ahead else {}
        corrected = dict(topics)
        for (name, number), end in real.items():
            at = mark.topics[name][number]
            if at <= end:
                logs = dict(corrected[name].partitions)
                logs[number] = Log(logs[number].first, at)
                corrected[name] = Topic(corrected[name].id, logs)
        return corrected

    def _ours(self, mark: OffsetsMark) -> OffsetsMark:
        """The part of the mark that the settings name; the rest keeps its offsets."""
        named = {name: offsets for name, offsets in mark.topics.items() if self._names(name)}
        return OffsetsMark(named, {name: known for name, known in mark.ids.items() if name in named})

    def _names(self, topic: str) -> bool:
        written = self._settings.topic_names
        return any(topic == name or (_is_pattern(name) and fnmatch.fnmatchcase(topic, name)) for name in written)

    def _still_there(self, window: Window) -> None:
        """A window that another process planned: its messages may be gone by now (G9)."""
        begin = self._offsets(window.start)
        end = self._offsets(window.end)
        if begin is None or end is None:
            raise SourceChanged(f"{self.address}: the window {window} does not say where it begins")
        moving = {name: offsets for name, offsets in begin.topics.items() if offsets != end.topics.get(name)}
        needed = OffsetsMark(moving, begin.ids)
        mismatches = gaps(needed, self._with_open_transactions(needed, self._broker.topics(moving)))
        if mismatches:
            raise changed(self.address, mismatches)

    def _first(self, topics: Mapping[str, Topic]) -> dict[Partition, int]:
        """Where the first window begins."""
        start = self._settings.start
        logs = {(name, number): log for name, topic in topics.items() for number, log in topic.partitions.items()}
        if start == "latest":
            return {partition: log.end for partition, log in logs.items()}
        if isinstance(start, dict):
            return _explicit(self.address, start, logs)
        if start == "earliest":
            return {partition: log.first for partition, log in logs.items()}
        return since(self._broker, logs, parse_moment(start))


def _explicit(
    address: str, start: Mapping[str, Mapping[int, int]], logs: Mapping[Partition, Log]
) -> dict[Partition, int]:
    wanted = {(name, number): offset for name, offsets in start.items() for number, offset in offsets.items()}
    for partition, offset in wanted.items():
        log = logs.get(partition)
        if log is None or not log.first <= offset <= log.end:
            there = f"it holds {log.first:,} up to {log.end:,}" if log else "there is no such partition"
            raise InputError(
                f"{address}: start: {partition[0]} partition {partition[1]} at {offset:,}: {there}",
                hint="write offsets that are there, or start: earliest",
            )
    return {partition: wanted.get(partition, log.first) for partition, log in logs.items()}


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _count(name: str, begin: Mapping[Partition, int], end: Mapping[Partition, int]) -> int:
    return sum(end[partition] - at for partition, at in begin.items() if partition[0] == name)


def _window_of(name: str, start: OffsetsMark, end: OffsetsMark) -> Window:
    return Window(
        OffsetsMark({name: start.topics[name]}, _id_of(name, start)),
        OffsetsMark({name: end.topics[name]}, _id_of(name, end)),
    )


def _id_of(name: str, mark: OffsetsMark) -> dict[str, str]:
    return {name: mark.ids[name]} if name in mark.ids else {}


def _why(name: str, begin: Mapping[Partition, int], end: Mapping[Partition, int]) -> str:
    moving = [partition for partition in begin if partition[0] == name and end[partition] > begin[partition]]
    partitions = sum(partition[0] == name for partition in begin)
    return f"offsets of {len(moving)} of {partitions} partition{'s' if partitions > 1 else ''}"
