"""When a pipeline's next cycle begins: decided here, waited for by the runner."""

from __future__ import annotations

import datetime as dt
from typing import Protocol

from cronsim import CronSim

from headwater.config.frozen import parse_duration
from headwater.model.errors import HeadwaterError

_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 300.0


class Schedule(Protocol):
    """A rule that names moments."""

    def after(self, began: dt.datetime, ended: dt.datetime) -> dt.datetime:
        """When the next cycle is due, after one that began and ended then."""


class Every:
    """A fixed interval from start to start; a cycle that takes longer is followed at once."""

    def __init__(self, interval: dt.timedelta) -> None:
        self._interval = interval

    def after(self, began: dt.datetime, ended: dt.datetime) -> dt.datetime:
        return max(began + self._interval, ended)


class Cron:
    """A cron line, in UTC."""

    def __init__(self, line: str) -> None:
        self._line = line

    def after(self, began: dt.datetime, ended: dt.datetime) -> dt.datetime:  # noqa: ARG002 - missed moments are not made up for
        return next(CronSim(self._line, ended))


def schedule_of(every: str) -> Schedule:
    """`5s` → Every, `*/5 * * * *` → Cron. The settings have been checked before."""
    if " " in every.strip() or every.startswith("@"):
        return Cron(every)
    interval = parse_duration(every)
    if not isinstance(interval, dt.timedelta):
        raise TypeError(every)
    return Every(interval)


def backoff_seconds(failures: int) -> float:
    """1 s, 2 s, 4 s … 5 minutes after so many failures in a row."""
    return float(min(_FIRST_BACKOFF_SECONDS * 2 ** (failures - 1), _LONGEST_BACKOFF_SECONDS))


def worth_retrying(error: HeadwaterError | None) -> bool:
    """Whether the engine should try again by itself: only what passes by itself."""
    return error is None or error.retry == "later"
