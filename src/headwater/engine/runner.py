"""Many pipelines in one process, one thread each, by their schedules, until stopped."""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.config.pipeline import next_cron, parse_every
from headwater.engine.cycle import run_cycle
from headwater.engine.pipeline import OpenPipeline
from headwater.engine.result import CycleResult
from headwater.engine.retry import backoff_seconds, worth_retrying

Report = Callable[[CycleResult], None]

_TRIES_WITHOUT_SCHEDULE = 5


@dataclass(frozen=True)
class ScheduledPipeline:
    """A pipeline and when it runs; without `every` it runs until it has caught up."""

    pipeline: OpenPipeline
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
        threading.Thread(target=_run_one, args=(scheduled, stop, remember), name=scheduled.pipeline.name)
        for scheduled in pipelines
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(last.values())


def _run_one(scheduled: ScheduledPipeline, stop: threading.Event, report: Report) -> None:
    pipeline, failures = scheduled.pipeline, 0
    try:
        while not stop.is_set():
            began = dt.datetime.now(dt.UTC)
            result = run_cycle(pipeline)
            report(result)
            # A stream that failed on its own is retried in its own time; the others must not wait for it.
            failures = failures + 1 if result.outcome == "failed" and not result.continues else 0
            if _is_over(scheduled, result, failures):
                return
            stop.wait(_pause(scheduled, result, failures, began))
    finally:
        pipeline.close()


def _is_over(scheduled: ScheduledPipeline, result: CycleResult, failures: int) -> bool:
    if not result.continues and not worth_retrying(result.error):
        scheduled.pipeline.log.event(
            scheduled.pipeline.name, "stopped", reason="operator action required; other pipelines keep running"
        )
        return True
    if scheduled.every is not None:
        return False
    return failures >= _TRIES_WITHOUT_SCHEDULE or (failures == 0 and not result.more)


def _pause(scheduled: ScheduledPipeline, result: CycleResult, failures: int, began: dt.datetime) -> float:
    """Seconds until the next cycle."""
    if failures:
        # Spread retries: pipelines that failed together should not come back together.
        return backoff_seconds(failures) * random.uniform(0.8, 1.2)  # noqa: S311 - no cryptography
    if result.more or scheduled.every is None:
        return 0.0
    ended = dt.datetime.now(dt.UTC)
    jitter = scheduled.jitter.total_seconds() * random.random() if scheduled.jitter else 0.0  # noqa: S311 - as above
    return max((next_start(scheduled.every, began, ended) - ended).total_seconds() + jitter, 0.0)


def next_start(every: str, began: dt.datetime, ended: dt.datetime) -> dt.datetime:
    """An interval counts from start to start, a cron line in UTC; a cycle that took longer is followed at once.

    Starts that passed while a cycle ran are not repeated: the next cycle reads everything new anyway.
    """
    rule = parse_every(every)
    if isinstance(rule, dt.timedelta):
        return max(began + rule, ended)
    return next_cron(rule, ended)
