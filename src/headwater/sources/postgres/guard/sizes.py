"""Sizes and times for people, in the units that settings are written in."""

from __future__ import annotations

import datetime as dt

_STEP = 1000
_UNITS = ("B", "KB", "MB", "GB", "TB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def size_text(count: int) -> str:
    """`12.3 GB`."""
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < _STEP:
            break
        value /= _STEP if unit != _UNITS[-1] else 1
    return f"{count} B" if unit == "B" else f"{value:,.1f} {unit}"


def time_text(duration: dt.timedelta) -> str:
    """`3.5 h`."""
    seconds = duration.total_seconds()
    for length, unit in ((_DAY, "days"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"
