"""Paused streams: the pipeline continues without a stream that failed on its own, and retries it over the same window."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.engine.journal import Journal
from headwater.engine.landing import LandedWindow, land_stream
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.result import CycleReport
from headwater.model.errors import HeadwaterError, is_of_one_stream
from headwater.model.position.window import Window
from headwater.model.progress import PausedStream
from headwater.model.protocols.source import IsolatesStreams, Plan, Source


def without_streams(source: Source, window: Window, streams: Mapping[str, object]) -> Window:
    """The window without these streams: they stay where it starts."""
    isolated = source.apart(window, frozenset(streams)) if streams and isinstance(source, IsolatesStreams) else None
    return isolated[1] if isolated else window


def failed_streams(window: Window, landed: LandedWindow) -> list[PausedStream]:
    """The streams to pause: over this very window, with what has landed of it (G2)."""
    now = dt.datetime.now(dt.UTC)
    return [
        PausedStream(
            stream,
            now,
            error.code,
            error.message,
            window,
            tuple(landing for landing in landed.landings if landing.stream == stream),
        )
        for stream, error in landed.failed.items()
    ]


def pause_failed(
    pipeline: OpenPipeline, journal: Journal, report: CycleReport, failed: Sequence[PausedStream], landed: LandedWindow
) -> None:
    """Put the errors of the streams on record that failed while the others landed."""
    for stream in failed:
        pause(pipeline, journal, report, stream, landed.failed[stream.stream])


def retry_paused(pipeline: OpenPipeline, journal: Journal, report: CycleReport) -> None:
    """Retry the paused streams that are due, each over the window that advanced without it."""
    for paused in journal.progress.paused:
        if paused.window is None or not pipeline.retries.is_due(paused.stream):
            continue
        report.event("retry", stream=paused.stream, window=paused.window, since=paused.since)
        _retry(pipeline, journal, report, paused, paused.window)


def _retry(pipeline: OpenPipeline, journal: Journal, report: CycleReport, paused: PausedStream, window: Window) -> None:
    isolated = (
        pipeline.source.apart(window, frozenset([paused.stream]))
        if isinstance(pipeline.source, IsolatesStreams)
        else None
    )
    own = isolated[0] if isolated else window
    try:
        landed = land_stream(pipeline, journal, report, paused, window, own=own)
    except HeadwaterError as unreadable:
        if not is_of_one_stream(unreadable):
            raise
        landed = LandedWindow((), {paused.stream: unreadable})  # what it has to read may be gone by now
    if paused.stream in landed.failed:
        current = next(one for one in journal.progress.paused if one.stream == paused.stream)  # with its landings
        pause(pipeline, journal, report, current, landed.failed[paused.stream], known=paused.error)
        return
    why = [f"{paused.stream} was paused since {paused.since:%Y-%m-%d %H:%M:%S}"]
    journal.advance(own, landed.landings, why=why, resumed=paused.stream)
    report.note_landed(own, landed.landings)
    pipeline.acknowledge(journal.mark)
    pipeline.retries.done(paused.stream)


def streams_to_skip(pipeline: OpenPipeline, journal: Journal, report: CycleReport) -> frozenset[str]:
    """Paused streams that the next plan leaves out.

    Without a mark every stream has to be part of the window, so that all of them start where the settings say.
    """
    skipped = [
        paused
        for paused in journal.progress.paused
        if paused.window or (journal.mark and not pipeline.retries.is_due(paused.stream))
    ]
    unreported = [paused for paused in skipped if paused.stream not in report.failed_streams]
    report.warn(*(f"{paused.stream} is paused: {paused.error}" for paused in unreported))
    return frozenset(paused.stream for paused in skipped)


def pause_refused(
    pipeline: OpenPipeline, journal: Journal, report: CycleReport, plan: Plan, skipped: frozenset[str]
) -> None:
    """Pause streams that the source refused before they were part of a window; resume those that it accepts again."""
    known = {paused.stream: paused for paused in journal.progress.paused if paused.window is None}
    for stream, error in plan.refused.items():
        paused = known.get(stream) or PausedStream(stream, dt.datetime.now(dt.UTC), "", "")
        pause(pipeline, journal, report, paused, error, known=paused.error)
    accepted: Sequence[str] = [stream for stream in known if stream not in plan.refused and stream not in skipped]
    if accepted:
        journal.resume(*accepted)
        for stream in accepted:
            pipeline.retries.done(stream)


def pause(
    pipeline: OpenPipeline,
    journal: Journal,
    report: CycleReport,
    stream: PausedStream,
    error: HeadwaterError,
    *,
    known: str = "",
) -> None:
    """The cycle has failed, but only for this stream. An error that is `known` already is not put on record again."""
    report.failed_streams[stream.stream] = error
    pipeline.retries.failed(stream.stream)
    report.event("stream failed", stream=stream.stream, code=error.code, message=error.message)
    if error.message != known:
        journal.pause(replace(stream, code=error.code, error=error.message), error)
