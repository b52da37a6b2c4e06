"""Compares every table of a pipeline with its source, at one position, while both keep changing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from headwater.engine.cycle import run_cycle
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.verify.compare import CompareRequest, TableComparison, refusal
from headwater.engine.verify.repair import repair
from headwater.engine.verify.report import ComparedTable, SkippedTable, VerifyReport
from headwater.model.errors import InputError, LeaseHeld, RunError, SnapshotGone, UnknownName
from headwater.model.position.marks import Mark
from headwater.model.progress import Progress
from headwater.model.protocols.lake import LakeHistory, LakeSink, LandedWindow
from headwater.model.protocols.source import Comparison, ComparisonPoint, NotCompared, Source, Verifiable

_MAX_PASSES = 3  # over what differs, where the source has no snapshot of all its rows
_MAX_ATTEMPTS = 10  # while snapshots disappear, because tables are truncated, rewritten or the mark moved on
_TableId = tuple[str, str]  # the sink's id, and the stream


@dataclass(frozen=True)
class VerifyRequest:
    """What to verify."""

    streams: tuple[str, ...] = ()  # none: all
    sink: str = ""  # its id or its position; empty: every sink that can be compared
    ranges: int | None = None
    wait_seconds: float = 600.0
    delete_extra: bool = False  # a repair also deletes rows that only the table has


def verify(
    pipeline: OpenPipeline,
    source: Source,
    request: VerifyRequest,
    confirm: Callable[[VerifyReport], bool] | None = None,
) -> VerifyReport:
    """Compare; where something differs and `confirm` returns True, repair it.

    `source` is a second instance of the pipeline's: `pipeline.source` may run cycles meanwhile.
    """
    began = time.monotonic()
    if not isinstance(source, Verifiable):
        raise InputError(
            f"{pipeline.name}: {source.address} has no rows to compare tables with",
            hint="verify works for the sources sql and postgres",
        )
    verification = _Verification(pipeline, source, request)
    mark, tables = verification.compare(None)
    for _ in range(_MAX_PASSES - 1):
        doubtful = {
            (table.sink, table.stream): table.differences.all_keys
            for table, sure in tables
            if not sure and table.differences.count
        }
        if not doubtful:
            break
        repeated = {(table.sink, table.stream): table.differences for table, _ in verification.compare(doubtful)[1]}
        tables = [
            (replace(table, differences=repeated.get((table.sink, table.stream), table.differences)), sure)
            for table, sure in tables
        ]
    compared = tuple(table for table, _ in tables)
    report = VerifyReport(pipeline.name, mark, compared, tuple(verification.skipped), time.monotonic() - began)
    if confirm is None or report.is_equal or not confirm(report):
        return report
    repaired = repair(pipeline, source, compared, request.wait_seconds, delete_extra=request.delete_extra)
    return replace(report, repaired=tuple(repaired), was_repaired=True, seconds=time.monotonic() - began)


class _Verification:
    """Compares the requested tables of one pipeline."""

    def __init__(self, pipeline: OpenPipeline, source: Verifiable, request: VerifyRequest) -> None:
        self._pipeline, self._source, self._request = pipeline, source, request
        self._sinks = _sinks(pipeline, request.sink)
        self.skipped: list[SkippedTable] = []

    def compare(self, only: Mapping[_TableId, pa.Table] | None) -> tuple[Mark, list[tuple[ComparedTable, bool]]]:
        """All tables, or only these keys; with each, whether all its rows were read at one snapshot of the source."""
        results: dict[_TableId, tuple[ComparedTable, bool]] = {}
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return self._compare_at(only, results), list(results.values())
            except SnapshotGone:
                if attempt == _MAX_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _compare_at(
        self, only: Mapping[_TableId, pa.Table] | None, results: dict[_TableId, tuple[ComparedTable, bool]]
    ) -> Mark:
        """Add what `results` lacks. Where a table's snapshot is gone, compare the others before raising."""
        self.skipped.clear()
        lost: SnapshotGone | None = None
        with self._source.comparison_point() as point:
            mark, histories, beyond = reach(
                self._pipeline, point, lambda at: self._histories(point, at), self._request.wait_seconds
            )
            pairs = list(self._comparable(point.compared(mark), histories))
            if not pairs:
                raise self._nothing_comparable()
            for sink, comparison, history in pairs:
                table_id = (sink.id, comparison.rows.stream)
                if table_id in results or (only is not None and table_id not in only):
                    continue
                compare_request = CompareRequest(self._request.ranges, None if only is None else only[table_id])
                try:
                    table = TableComparison(self._pipeline, sink, comparison, history.before(beyond)).compare(
                        compare_request
                    )
                except SnapshotGone as gone:
                    lost = gone
                else:
                    results[table_id] = replace(table, mark=mark), comparison.one_view
        if lost is not None:
            raise lost
        return mark

    def _histories(self, point: ComparisonPoint, mark: Mark) -> dict[_TableId, LakeHistory | None]:
        streams = point.streams(mark)
        unknown = [stream for stream in self._request.streams if stream not in streams]
        if unknown:
            raise UnknownName(
                f"{self._pipeline.name}: no rows of a stream {unknown[0]!r} have landed",
                hint=f"there are: {', '.join(streams)}",
            )
        return {
            (sink.id, stream): sink.lake(self._pipeline.spark()).history(self._pipeline.name, stream)
            for sink in self._sinks
            for stream in self._request.streams or streams
        }

    def _comparable(
        self, streams: Sequence[Comparison | NotCompared], histories: Mapping[_TableId, LakeHistory | None]
    ) -> Iterator[tuple[LakeSink, Comparison, LakeHistory]]:
        """The tables that can be compared; notes why others cannot."""
        for comparison in streams:
            stream = comparison.stream if isinstance(comparison, NotCompared) else comparison.rows.stream
            if self._request.streams and stream not in self._request.streams:
                continue
            for sink in self._sinks:
                history = histories.get((sink.id, stream))
                why = comparison.why if isinstance(comparison, NotCompared) else refusal(sink, comparison.rows)
                why = why or ("" if history else f"{sink.table_name(stream)} does not exist")
                if isinstance(comparison, Comparison) and history and not why:
                    yield sink, comparison, history
                else:
                    self.skipped.append(SkippedTable(sink.id, stream, why))

    def _nothing_comparable(self) -> InputError:
        reasons = "; ".join(f"{table.sink} of {table.stream}: {table.why}" for table in self.skipped)
        return InputError(
            f"{self._pipeline.name}: nothing can be compared ({reasons or 'no stream has landed'})",
            hint="verify compares Iceberg tables of mode merge, history (of captured changes) and append (of polled rows)",
        )


def _sinks(pipeline: OpenPipeline, sink_id: str) -> list[LakeSink]:
    tables = [sink for sink in pipeline.sinks() if isinstance(sink, LakeSink)]
    chosen = [sink for sink in tables if sink_id in ("", sink.id, sink.id.partition(":")[0])]
    if not chosen:
        what = f"no Iceberg sink {sink_id!r}" if sink_id else "no Iceberg sink"
        known = f"there are: {', '.join(sink.id for sink in tables)}"
        hint = known if tables else "verify compares Iceberg tables: add an iceberg sink"
        raise UnknownName(f"{pipeline.name}: there is {what}", hint=hint)
    return chosen


T = TypeVar("T")
Beyond = Callable[[LandedWindow], bool]
_PAUSE_SECONDS = 0.1


def reach(
    pipeline: OpenPipeline, point: ComparisonPoint, look: Callable[[Mark], T], wait_seconds: float
) -> tuple[Mark, T, Beyond]:
    """The mark, the tables that `look` returned, and which of their landings are beyond the mark."""
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
            tables = look(before.mark)
            after = pipeline.store.load(pipeline.name)
            if after.mark == before.mark:
                return before.mark, tables, _unfinished(before, after)
        else:
            _advance(pipeline)
        if time.monotonic() > deadline:
            raise RunError(
                f"{pipeline.name}: the mark did not reach the position of the comparison within {wait_seconds:g} s",
                hint="run the pipeline, or wait longer: --wait 10m",
            )


def _unfinished(*progresses: Progress) -> Beyond:
    """Landings of windows that are not finished, for all streams or for a paused one."""
    windows = {progress.intent.window.id for progress in progresses if progress.intent}
    waiting = {
        (paused.stream, paused.window.id) for progress in progresses for paused in progress.paused if paused.window
    }
    return lambda landing: landing.window in windows or (landing.stream, landing.window) in waiting


def _advance(pipeline: OpenPipeline) -> None:
    """Run one cycle, or wait while another process runs one."""
    result = run_cycle(pipeline)
    if result.error and not result.continues and not isinstance(result.error, LeaseHeld):
        raise result.error
    if result.outcome != "landed":
        time.sleep(_PAUSE_SECONDS)
