"""Messages that are no change of a row: some belong to the stream and bring nothing, others should not be there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headwater.sources.json.strict import Misfit, document

OPS = ("c", "u", "d", "r", "t")
_MESSAGE = "m"  # what pg_logical_emit_message wrote
_MOMENTS = {"ts_ms", "ts_us", "ts_ns"}
_TRANSACTION = {"status", "id"}
_SCHEMA_CHANGE = {"ddl", "tableChanges", "historyRecord"}

FLATTENED = (
    "no change event: it has neither `op` nor `source`, as flattened ones; "
    "take the transform ExtractNewRecordState out of the connector"
)


class Nothing(Exception):
    """A message that brings no row, and should not."""


def is_envelope(names: Collection[str]) -> bool:
    return "op" in names and "source" in names


def why_none(payload: bytes, reason: str = "") -> str:
    """Why a message is a reject; `reason`, if it is an event. Raises Nothing where it is none."""
    if payload == b"null":
        raise Nothing
    try:
        found = dict(document(payload))
    except Misfit as misfit:
        return str(misfit)
    if not is_envelope(found):
        return why_no_event(found)
    op: Any = found["op"]
    if op == _MESSAGE:
        raise Nothing
    return reason if op in OPS else f"op: {op!r} is none of {', '.join(OPS)}"


def why_no_event(names: Collection[str]) -> str:
    """The same for a message that is no change event, by its fields."""
    found = set(names)
    if found <= _MOMENTS or found >= _TRANSACTION or ("source" in found and found & _SCHEMA_CHANGE):
        raise Nothing  # a heartbeat, a transaction's begin or end, a change of the schema
    return FLATTENED
