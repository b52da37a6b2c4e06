"""Many pipelines in one process, one thread each, until told to stop."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.engine.cycle import run_cycle
from headwater.engine.parts import Parts
from headwater.engine.result import CycleResult
from headwater.engine.schedule import backoff_seconds, next_start, worth_retrying

Report = Callable[[CycleResult], None]

_TRIES_WITHOUT_SCHEDULE = 5


@dataclass(frozen=True)
class ScheduledPipeline:
    """A pipeline and when it runs; without `every` it runs until it has caught up."""

    parts: Parts
    every: str | None
    jitter: dt.timedelta | None = None


def run_all(pipelines: Sequence[ScheduledPipeline], stop: threading.Event, report: Report) -> Sequence[CycleResult]:
    """Run every pipeline until `stop` is set or none has anything more to do; return each one's last result.

    One failing pipeline disturbs no other: each has its own thread, lease and pool of Spark's scheduler.
    """
    last: dict[str, CycleResult] = {}

    def remember(result: CycleResult) -> None:
        last[result.pipeline] = result
        report(result)

    threads = [
        threading.Thread(target=_run_one, args=(pipeline, stop, remember), name=pipeline.parts.name)
        for pipeline in pipelines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(last.values())


def _run_one(pipeline: ScheduledPipeline, stop: threading.Event, report: Report) -> None:
    parts, failures = pipeline.parts, 0
    try:
        while not stop.is_set():
            began = dt.datetime.now(dt.UTC)
            result = run_cycle(parts)
            report(result)
            # A stream that failed by itself is tried again in its own time; the others must not wait for it.
            failures = failures + 1 if result.outcome == "failed" and not result.goes_on else 0
            if _is_over(pipeline, result, failures):
                return
            stop.wait(_pause(pipeline, result, failures, began))
    finally:
        parts.close()


def _is_over(pipeline: ScheduledPipeline, result: CycleResult, failures: int) -> bool:
    if not result.goes_on and not worth_retrying(result.error):
        pipeline.parts.log.event(
            pipeline.parts.name, "stopped", reason="it needs somebody's hand; the other pipelines go on"
        )
        return True
    if pipeline.every is not None:
        return False
    return failures >= _TRIES_WITHOUT_SCHEDULE or (failures == 0 and not result.more)


def _pause(pipeline: ScheduledPipeline, result: CycleResult, failures: int, began: dt.datetime) -> float:
    """Seconds until the next cycle."""
    if failures:
        # Spread retries: pipelines that failed together should not come back together.
        return backoff_seconds(failures) * random.uniform(0.8, 1.2)  # noqa: S311 - no cryptography
    if result.more or pipeline.every is None:
        return 0.0
    ended = dt.datetime.now(dt.UTC)
    jitter = pipeline.jitter.total_seconds() * random.random() if pipeline.jitter else 0.0  # noqa: S311 - as above
    return max((next_start(pipeline.every, began, ended) - ended).total_seconds() + jitter, 0.0)
