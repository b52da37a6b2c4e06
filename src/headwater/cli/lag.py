"""How far pipelines are behind their sources, as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import Output, table
from headwater.model.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.model.marks import Json
    from headwater.model.source import Lag

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def lag_of(pipeline: Pipeline, out: Output) -> Sequence[Lag] | None:
    """None where the source cannot say, or does not answer now: then why is said on the way."""
    try:
        return pipeline.lag()
    except HeadwaterError as error:
        out.say(f"{pipeline.name}: lag is not known: {error.message}")
        return None


def lag_json(lags: Sequence[Lag] | None) -> Json:
    """`{"messages", "seconds", "partitions": […]}`, or null."""
    if lags is None:
        return None
    return {
        "messages": sum(lag.behind for lag in lags),
        "seconds": _oldest(lags),
        "partitions": [
            {
                "stream": lag.stream,
                "partition": lag.part,
                "position": lag.position,
                "end": lag.end,
                "messages": lag.behind,
                "seconds": None if lag.seconds is None else round(lag.seconds, 3),
            }
            for lag in lags
        ],
    }


def lag_table(lags: Sequence[Lag]) -> str:
    rows = [(lag.stream, lag.part, lag.position, lag.end, lag.behind, _age(lag.seconds)) for lag in lags]
    return table(("stream", "partition", "position", "end", "behind", "oldest unread"), rows)


def lag_line(lags: Sequence[Lag] | None) -> str:
    """`1,234, oldest 3 s`, for one cell."""
    if lags is None:
        return "–"
    messages = sum(lag.behind for lag in lags)
    return f"{messages:,}, oldest {_age(_oldest(lags))}" if messages else "0"


def _oldest(lags: Sequence[Lag]) -> float | None:
    ages = [lag.seconds for lag in lags if lag.seconds is not None]
    return round(max(ages), 3) if ages else None


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"
