"""The public JSON shapes of marks and windows; what only the engine needs stays out of them."""

from __future__ import annotations

from headwater.model.marks import ColumnMark, Json, Mark, StreamsMark
from headwater.model.window import Window


def mark_json(mark: Mark | None) -> Json:
    """`{"kind": "column", "column", "type", "value"}`, one such per stream, or null."""
    if mark is None:
        return None
    if isinstance(mark, StreamsMark):
        return {"kind": mark.kind, "streams": {name: mark_json(one) for name, one in sorted(mark.streams.items())}}
    data = mark.to_json()
    if isinstance(mark, ColumnMark):
        return {name: data[name] for name in ("kind", "column", "type", "value")}
    return {name: value for name, value in data.items() if name != "version"}


def window_json(window: Window | None) -> Json:
    return None if window is None else {"start": mark_json(window.start), "end": mark_json(window.end)}
