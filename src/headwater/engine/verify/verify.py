"""`headwater verify`: every table of a pipeline against its source, at one position, while both keep changing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from headwater.engine.cycle import run_cycle
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.verify.compare import TableComparison, Wanted, refusal
from headwater.engine.verify.repair import repair
from headwater.engine.verify.report import Compared, Refused, Verified
from headwater.model.errors import InputError, LeaseHeld, RunError, SnapshotGone, UnknownName
from headwater.model.marks import Mark
from headwater.model.progress import Progress
from headwater.model.protocols.lake import LakeHistory, LakeSink, LandedWindow
from headwater.model.protocols.source import Comparison, ComparisonPoint, NotCompared, Source, Verifiable

_LOOKS = 3  # at what differs, where a source is not read in one view
_MEETINGS = 10  # where tables are truncated or rewritten while they are read, or the mark was just past
_Place = tuple[str, str]  # the sink's id, and the stream


@dataclass(frozen=True)
class VerifyRequest:
    """What is to be verified."""

    streams: tuple[str, ...] = ()  # none: all
    sink: str = ""  # its id or its position; empty: every sink that can be compared
    ranges: int | None = None
    wait_seconds: float = 600.0
    delete_extra: bool = False  # with a repair: rows go that only the table has


def verify(
    pipeline: OpenPipeline, source: Source, request: VerifyRequest, agreed: Callable[[Verified], bool] | None = None
) -> Verified:
    """Compare; and, where something differs and `agreed` says yes, read it again and land it.

    `source` is the pipeline's, opened a second time: that of `pipeline` may run cycles meanwhile.
    """
    began = time.monotonic()
    if not isinstance(source, Verifiable):
        raise InputError(
            f"{pipeline.name}: {source.address} has no rows to compare tables with",
            hint="verify works for the sources sql and postgres",
        )
    verification = _Verification(pipeline, source, request)
    mark, tables = verification.look(None)
    for _ in range(_LOOKS - 1):
        doubtful = {(one.sink, one.stream): one.found.all_keys for one, sure in tables if not sure and one.found.count}
        if not doubtful:
            break
        seen = {(one.sink, one.stream): one.found for one, _ in verification.look(doubtful)[1]}
        tables = [(replace(one, found=seen.get((one.sink, one.stream), one.found)), sure) for one, sure in tables]
    found = tuple(one for one, _ in tables)
    verified = Verified(pipeline.name, mark, found, tuple(verification.refused), time.monotonic() - began)
    if agreed is None or verified.is_equal or not agreed(verified):
        return verified
    done = repair(pipeline, source, found, request.wait_seconds, delete_extra=request.delete_extra)
    return replace(verified, repaired=tuple(done), was_repaired=True, seconds=time.monotonic() - began)


class _Verification:
    """Looks at the tables of one pipeline that were asked for."""

    def __init__(self, pipeline: OpenPipeline, source: Verifiable, request: VerifyRequest) -> None:
        self._pipeline, self._source, self._request = pipeline, source, request
        self._sinks = _sinks(pipeline, request.sink)
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
        raise AssertionError("the last point returns or raises")

    def _meet(self, only: Mapping[_Place, pa.Table] | None, found: dict[_Place, tuple[Compared, bool]]) -> Mark:
        """What is not in `found` yet. Where a table's snapshot is lost the others are compared, before that is said."""
        self.refused.clear()
        lost: SnapshotGone | None = None
        with self._source.meet() as point:
            mark, histories, beyond = reach(
                self._pipeline, point, lambda at: self._histories(point, at), self._request.wait_seconds
            )
            pairs = list(self._pairs(point.compared(mark), histories))
            if not pairs:
                raise self._nothing()
            for sink, comparison, history in pairs:
                place = (sink.id, comparison.rows.stream)
                if place in found or (only is not None and place not in only):
                    continue
                wanted = Wanted(self._request.ranges, None if only is None else only[place])
                try:
                    one = TableComparison(self._pipeline, sink, comparison, history.before(beyond)).compare(wanted)
                except SnapshotGone as gone:
                    lost = gone
                else:
                    found[place] = replace(one, mark=mark), comparison.one_view
        if lost is not None:
            raise lost
        return mark

    def _histories(self, point: ComparisonPoint, mark: Mark) -> dict[_Place, LakeHistory | None]:
        streams = point.streams(mark)
        unknown = [stream for stream in self._request.streams if stream not in streams]
        if unknown:
            raise UnknownName(
                f"{self._pipeline.name}: nothing of a stream {unknown[0]!r} has landed",
                hint=f"there are: {', '.join(streams)}",
            )
        return {
            (sink.id, stream): sink.lake(self._pipeline.spark()).history(self._pipeline.name, stream)
            for sink in self._sinks
            for stream in self._request.streams or streams
        }

    def _pairs(
        self, streams: Sequence[Comparison | NotCompared], histories: Mapping[_Place, LakeHistory | None]
    ) -> Iterator[tuple[LakeSink, Comparison, LakeHistory]]:
        """What can be compared; what cannot is said."""
        for one in streams:
            stream = one.stream if isinstance(one, NotCompared) else one.rows.stream
            if self._request.streams and stream not in self._request.streams:
                continue
            for sink in self._sinks:
                history = histories.get((sink.id, stream))
                why = one.why if isinstance(one, NotCompared) else refusal(sink, one.rows)
                why = why or ("" if history else f"there is no {sink.table_name(stream)}")
                if isinstance(one, Comparison) and history and not why:
                    yield sink, one, history
                else:
                    self.refused.append(Refused(sink.id, stream, why))

    def _nothing(self) -> InputError:
        reasons = "; ".join(f"{one.sink} of {one.stream}: {one.why}" for one in self.refused)
        return InputError(
            f"{self._pipeline.name}: nothing can be compared ({reasons or 'no stream has landed'})",
            hint="verify compares Iceberg tables of mode merge, history (of captured changes) and append (of polled rows)",
        )


def _sinks(pipeline: OpenPipeline, wanted: str) -> list[LakeSink]:
    tables = [sink for sink in pipeline.sinks() if isinstance(sink, LakeSink)]
    chosen = [sink for sink in tables if wanted in ("", sink.id, sink.id.partition(":")[0])]
    if not chosen:
        what = f"no Iceberg sink {wanted!r}" if wanted else "no Iceberg sink"
        raise UnknownName(
            f"{pipeline.name}: there is {what}",
            hint=f"there are: {', '.join(sink.id for sink in tables)}" if tables else "other sinks cannot be compared",
        )
    return chosen


Looked = TypeVar("Looked")
Beyond = Callable[[LandedWindow], bool]
_PAUSE_SECONDS = 0.1


def reach(
    pipeline: OpenPipeline, point: ComparisonPoint, look: Callable[[Mark], Looked], wait_seconds: float
) -> tuple[Mark, Looked, Beyond]:
    """The mark, what `look` saw of the tables, and which of their landings are beyond it."""
    deadline = time.monotonic() + wait_seconds
    while True:
        before = pipeline.store.load(pipeline.name)
        if before.mark is None:
            raise RunError(
                f"{pipeline.name}: nothing has landed yet, so there is nothing to compare",
                hint="run the pipeline first: headwater run FILE --once",
            )
        standing = point.standing(before.mark)
        if standing == "past":
            return before.mark, look(before.mark), lambda landing: point.beyond(landing.end)
        if standing == "here":
            looked = look(before.mark)
            after = pipeline.store.load(pipeline.name)
            if after.mark == before.mark:
                return before.mark, looked, _under_way(before, after)
        else:
            _advance(pipeline)
        if time.monotonic() > deadline:
            raise RunError(
                f"{pipeline.name}: the mark did not reach the position of the comparison within {wait_seconds:g} s",
                hint="run the pipeline, or give it more time: --wait 10m",
            )


def _under_way(*seen: Progress) -> Beyond:
    """Landings of windows that are not finished, for all streams or for a paused one."""
    windows = {one.intent.window.id for one in seen if one.intent}
    waiting = {(left.stream, left.window.id) for one in seen for left in one.paused if left.window}
    return lambda landing: landing.window in windows or (landing.stream, landing.window) in waiting


def _advance(pipeline: OpenPipeline) -> None:
    """Run one cycle, or wait while another process runs one."""
    result = run_cycle(pipeline)
    if result.error and not result.continues and not isinstance(result.error, LeaseHeld):
        raise result.error
    if result.outcome != "landed":
        time.sleep(_PAUSE_SECONDS)
