"""When a pipeline runs: `every: 5s`, or a cron line in UTC."""

from __future__ import annotations

import datetime as dt

from headwater.config.frozen import parse_duration

_FORMS = "write a duration (5s, 10m) or a cron line in UTC (*/5 * * * *)"
_SECONDS_ALONE = "write the unit too, for example 5s"


def parse_every(text: object) -> dt.timedelta | str:
    """A duration, or the cron line as it is. Raises ValueError with what to write."""
    if isinstance(text, int | float):
        raise ValueError(_SECONDS_ALONE)
    if not isinstance(text, str):
        raise ValueError(_FORMS)
    if len(text.split()) > 1 or text.startswith("@"):
        _check_cron(text)
        return text
    try:
        interval = parse_duration(text)
    except ValueError:
        raise ValueError(_SECONDS_ALONE if text.strip().isdecimal() else _FORMS) from None
    if not interval:
        raise ValueError("write an interval above zero, for example 100ms")
    return interval


def next_cron(line: str, after: dt.datetime) -> dt.datetime:
    """The first moment of a cron line after another one."""
    from cronsim import CronSim  # noqa: PLC0415 - only pipelines with a cron line pay for it

    return next(CronSim(line, after.astimezone(dt.UTC)))


def _check_cron(line: str) -> None:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only pipelines with a cron line pay for it

    try:
        next(CronSim(line, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)))
    except CronSimError as error:
        raise ValueError(f"not a cron line ({str(error).lower()}); {_FORMS}") from None
    except StopIteration:
        raise ValueError(f"a cron line that never comes true; {_FORMS}") from None
