"""One cycle of one pipeline: lease, recover, plan, intend, read, land, advance, acknowledge."""

from __future__ import annotations

from headwater.engine import isolation
from headwater.engine.journal import Journal, new_run, open_journal
from headwater.engine.labels import labelled
from headwater.engine.landing import land_window
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.result import CycleReport, CycleResult
from headwater.model.errors import HeadwaterError
from headwater.model.position.stream_state import columns_learned
from headwater.model.position.window import Window
from headwater.model.progress import Intent
from headwater.model.protocols.source import Abandons, Plan, Source


def run_cycle(pipeline: OpenPipeline) -> CycleResult:
    """Advance the pipeline by one window. Never raises: a failure is a result, and the mark stays (G1)."""
    report = CycleReport(pipeline.name, new_run(), pipeline.log)
    with (
        report.capturing_errors(),
        open_journal(  # 1 lease
            pipeline.store,
            pipeline.name,
            pipeline.owner,
            pipeline.lease_seconds,
            run=report.run,
            faults=pipeline.faults,
        ) as journal,
    ):
        report.event(  # W4
            "cycle begins", mark=journal.mark or "none", store=pipeline.store.address, epoch=journal.lease.epoch
        )
        try:
            _advance_once(pipeline, journal, report)
        except HeadwaterError as error:
            _record_failure(journal, report, error)
            raise
    return report.result()


def _advance_once(pipeline: OpenPipeline, journal: Journal, report: CycleReport) -> None:
    if journal.intent:
        _recover(pipeline, journal, report, journal.intent)  # 2 recover
    isolation.retry_paused(pipeline, journal, report)
    skip = isolation.streams_to_skip(pipeline, journal, report)
    plan = pipeline.source.plan(journal.mark, claim=journal.claim, skip=skip)  # 3 plan
    isolation.pause_refused(pipeline, journal, report, plan, skip)
    report.note_more(more=plan.more)
    report.warn(*plan.warnings)
    if plan.window:
        report.event("window", window=plan.window, rows=_expected_rows(plan))
        intent = journal.intend(plan.window)  # 4 intend
        _finish_window(pipeline, journal, report, intent)  # 5 to 8


def _recover(pipeline: OpenPipeline, journal: Journal, report: CycleReport, intent: Intent) -> None:
    """Finish what an earlier process began, or give it up where the source says that it ended with that process."""
    reason = abandon_lost(pipeline.source, journal)
    if reason:
        report.event("abandoned", window=intent.window, begun=intent.begun_at, reason=reason)
        return
    report.event("recovering", window=intent.window, begun=intent.begun_at)
    _finish_window(pipeline, journal, report, intent)


def abandon_lost(source: Source, journal: Journal) -> str:
    """Drop an intent that the source can no longer read, and return why; empty: it can be finished."""
    if journal.intent is None or not isinstance(source, Abandons):
        return ""
    reason = source.abandoned(journal.intent.window)
    if reason:
        journal.abandon(reason)
    return reason


def _finish_window(pipeline: OpenPipeline, journal: Journal, report: CycleReport, intent: Intent) -> None:
    """Read, land, advance, acknowledge: the same for a first try and for a recovery."""
    landed = land_window(pipeline, journal, report, intent)  # 5 read, 6 land
    window = isolation.without_streams(pipeline.source, intent.window, landed.failed)
    paused = isolation.failed_streams(intent.window, landed)
    recovered = [f"finished what run {intent.run} began"] if intent.run != journal.run else []
    why = [*recovered, *_changes(report, window), *(f"without {stream}" for stream in sorted(landed.failed))]
    journal.advance(window, landed.complete, why=why, paused=paused)  # 7 mark, intent and history in one swap (G1, G3)
    report.note_landed(window, landed.complete, recovered=bool(recovered))
    pipeline.acknowledge(window.end)  # 8 last (G10)
    isolation.pause_failed(pipeline, journal, report, paused, landed)


def _changes(report: CycleReport, window: Window) -> list[str]:
    """What the window changes beside its rows, for the history: columns, labels."""
    learned = columns_learned(window.start.streams if window.start else {}, window.end.streams)
    if learned:
        report.event("columns", changed="; ".join(learned))
    return [*learned, *labelled(window.end).notes]


def _record_failure(journal: Journal, report: CycleReport, error: HeadwaterError) -> None:
    try:
        journal.record_failure(error)
    except HeadwaterError as second:
        # The first error is the one to show; that it could not be recorded is logged beside it.
        report.event("failure not recorded", reason=second.message)


def _expected_rows(plan: Plan) -> int | str:
    counts = [stream.rows for stream in plan.streams]
    return "unknown" if None in counts else sum(count or 0 for count in counts)
