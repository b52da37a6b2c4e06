"""When a pipeline's next cycle begins: decided here, waited for by the runner."""

from __future__ import annotations

import datetime as dt

from headwater.config.schedule import next_cron, parse_every
from headwater.model.errors import HeadwaterError

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 300.0


def next_start(every: str, began: dt.datetime, ended: dt.datetime) -> dt.datetime:
    """An interval counts from start to start, a cron line in UTC; a cycle that took longer is followed at once.

    Moments that passed while a cycle ran are not made up for: the next cycle reads everything new anyway.
    """
    rule = parse_every(every)
    if isinstance(rule, dt.timedelta):
        return max(began + rule, ended)
    return next_cron(rule, ended)


def backoff_seconds(failures: int) -> float:
    """1 s, 2 s, 4 s … 5 minutes after so many failures in a row."""
    return float(min(_FIRST_BACKOFF_SECONDS * 2 ** (failures - 1), _LONGEST_BACKOFF_SECONDS))


def worth_retrying(error: HeadwaterError | None) -> bool:
    """Whether the engine should try again by itself: only what passes by itself."""
    return error is None or error.retry == "later"
