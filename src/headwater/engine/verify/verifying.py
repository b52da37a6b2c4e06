"""`headwater verify`: every table of a pipeline against its source, at one position, while both go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.engine.parts import Parts
from headwater.engine.verify.comparing import TableComparison, Wanted, refusal
from headwater.engine.verify.reaching import reach
from headwater.engine.verify.repairing import repair
from headwater.engine.verify.report import Compared, Refused, Verified
from headwater.model.comparing import Compares, Comparison, Meeting, NotCompared
from headwater.model.errors import InputError, SnapshotGone, UnknownName
from headwater.model.marks import Mark
from headwater.model.source import Source
from headwater.sinks.iceberg.pinned import TableHistory
from headwater.sinks.iceberg.sink import IcebergSink

_LOOKS = 3  # at what differs, where a source is not read in one view
_MEETINGS = 10  # where tables are truncated or rewritten while they are read, or the mark was just past
_Place = tuple[str, str]  # the sink's label, and the stream


@dataclass(frozen=True)
class VerifyOrder:
    """What is to be verified."""

    streams: tuple[str, ...] = ()  # none: all
    sink: str = ""  # its label, or its number; none: all that can be compared
    ranges: int | None = None
    wait_seconds: float = 600.0
    delete_extra: bool = False  # with a repair: rows go that only the table has


def verify(
    parts: Parts, source: Source, order: VerifyOrder, agreed: Callable[[Verified], bool] | None = None
) -> Verified:
    """Compare; and, where something differs and `agreed` says yes, read it again and land it.

    `source` is the pipeline's, opened a second time: that of `parts` may run cycles meanwhile.
    """
    began = time.monotonic()
    if not isinstance(source, Compares):
        raise InputError(
            f"{parts.name}: {source.address} is no database, and has no rows that tables could be compared with",
            hint="verify works for the sources sql and postgres",
        )
    looking = _Looking(parts, source, order)
    mark, tables = looking.look(None)
    for _ in range(_LOOKS - 1):
        doubtful = {(one.sink, one.stream): one.found.all_keys for one, sure in tables if not sure and one.found.count}
        if not doubtful:
            break
        seen = {(one.sink, one.stream): one.found for one, _ in looking.look(doubtful)[1]}
        tables = [(replace(one, found=seen.get((one.sink, one.stream), one.found)), sure) for one, sure in tables]
    found = tuple(one for one, _ in tables)
    verified = Verified(parts.name, mark, found, tuple(looking.refused), time.monotonic() - began)
    if agreed is None or verified.is_equal or not agreed(verified):
        return verified
    done = repair(parts, source, found, order.wait_seconds, delete_extra=order.delete_extra)
    return replace(verified, repaired=tuple(done), was_repaired=True, seconds=time.monotonic() - began)


class _Looking:
    """Looks at the tables of one pipeline that were asked for."""

    def __init__(self, parts: Parts, source: Compares, order: VerifyOrder) -> None:
        self._parts, self._source, self._order = parts, source, order
        self._sinks = _sinks(parts, order.sink)
        self.refused: list[Refused] = []

    def look(self, only: Mapping[_Place, pa.Table] | None) -> tuple[Mark, list[tuple[Compared, bool]]]:
        """All of them, or some keys of some; with each whether its source was seen in one view."""
        found: dict[_Place, tuple[Compared, bool]] = {}
        for number in range(1, _MEETINGS + 1):
            try:
                return self._meet(only, found), list(found.values())
            except SnapshotGone:
                if number == _MEETINGS:
                    raise
        raise AssertionError("the last meeting returns or raises")

    def _meet(self, only: Mapping[_Place, pa.Table] | None, found: dict[_Place, tuple[Compared, bool]]) -> Mark:
        """What is not in `found` yet. Where a table's snapshot is lost the others are compared, before that is said."""
        self.refused.clear()
        lost: SnapshotGone | None = None
        with self._source.meet() as meeting:
            mark, histories, beyond = reach(
                self._parts, meeting, lambda at: self._histories(meeting, at), self._order.wait_seconds
            )
            pairs = list(self._pairs(meeting.compared(mark), histories))
            if not pairs:
                raise self._nothing()
            for sink, comparison, history in pairs:
                place = (sink.label, comparison.rows.stream)
                if place in found or (only is not None and place not in only):
                    continue
                wanted = Wanted(self._order.ranges, None if only is None else only[place])
                try:
                    one = TableComparison(self._parts, sink, comparison, history.before(beyond)).compare(wanted)
                except SnapshotGone as gone:
                    lost = gone
                else:
                    found[place] = replace(one, mark=mark), comparison.one_view
        if lost is not None:
            raise lost
        return mark

    def _histories(self, meeting: Meeting, mark: Mark) -> dict[_Place, TableHistory | None]:
        streams = meeting.streams(mark)
        unknown = [stream for stream in self._order.streams if stream not in streams]
        if unknown:
            raise UnknownName(
                f"{self._parts.name}: nothing of a stream {unknown[0]!r} has landed",
                hint=f"there are: {', '.join(streams)}",
            )
        return {
            (sink.label, stream): TableHistory.of(self._parts.spark(), sink, self._parts.name, stream)
            for sink in self._sinks
            for stream in self._order.streams or streams
        }

    def _pairs(
        self, streams: Sequence[Comparison | NotCompared], histories: Mapping[_Place, TableHistory | None]
    ) -> Iterator[tuple[IcebergSink, Comparison, TableHistory]]:
        """What can be compared; what cannot is said."""
        for one in streams:
            stream = one.stream if isinstance(one, NotCompared) else one.rows.stream
            if self._order.streams and stream not in self._order.streams:
                continue
            for sink in self._sinks:
                history = histories.get((sink.label, stream))
                why = one.why if isinstance(one, NotCompared) else refusal(sink, one.rows)
                why = why or ("" if history else f"there is no {sink.table_of(stream)}")
                if isinstance(one, Comparison) and history and not why:
                    yield sink, one, history
                else:
                    self.refused.append(Refused(sink.label, stream, why))

    def _nothing(self) -> InputError:
        reasons = "; ".join(f"{one.sink} of {one.stream}: {one.why}" for one in self.refused)
        return InputError(
            f"{self._parts.name}: nothing can be compared ({reasons or 'no stream has landed'})",
            hint="verify compares Iceberg tables of mode merge, history (of captured changes) and append (of polled rows)",
        )


def _sinks(parts: Parts, wanted: str) -> list[IcebergSink]:
    tables = [sink for sink in parts.sinks() if isinstance(sink, IcebergSink)]
    chosen = [sink for sink in tables if wanted in ("", sink.label, sink.label.partition(":")[0])]
    if not chosen:
        what = f"no Iceberg sink {wanted!r}" if wanted else "no Iceberg sink"
        raise UnknownName(
            f"{parts.name}: there is {what}",
            hint=f"there are: {', '.join(sink.label for sink in tables)}"
            if tables
            else "other sinks cannot be compared",
        )
    return chosen
