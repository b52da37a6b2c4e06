"""Messages taken apart: the schema that Connect's JSON converter puts before the payload, and the payload.

All messages of one shape begin with the same bytes, their schema. Those are parsed once; of the others only the payload is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from headwater.sources.json.strict import Misfit, document, json_text

_SCHEMA = b'{"schema":'
_PAYLOAD = b'"payload":'
# How a message with a schema may begin: Connect writes it without a space, others may not.
_WRAPPED = (
    b'{"schema"',
    b'{"payload"',
    *(start + space for start in (b"{", b"") for space in (b" ", b"\n", b"\r", b"\t")),
)
_NULL = b"null"


@dataclass(eq=False)
class Shape:
    """What messages say of themselves."""

    schema: dict[str, Any] | None  # Connect's; None: nothing

    def fields(self) -> dict[str, dict[str, Any]]:
        """Of a struct, by name."""
        return fields_of(self.schema)

    def struct(self, name: str) -> dict[str, dict[str, Any]]:
        """The fields of the field of that name."""
        return fields_of(self.fields().get(name))


def _is_wrapped(value: bytes | None) -> bool:
    return value is not None and value.startswith(_WRAPPED)


def fields_of(schema: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {one["field"]: one for one in (schema or {}).get("fields") or ()}


@dataclass
class Group:
    """Messages of one shape."""

    indices: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)  # never `null`, but where messages have no schema


class Envelopes:
    """Takes messages apart; remembers the shapes it has seen."""

    def __init__(self) -> None:
        self._known: dict[bytes, Shape] = {}
        self._bare = Shape(None)

    def grouped(self, values: Sequence[bytes | None]) -> dict[Shape, Group]:
        """By shape. Messages without a value, or without a payload, are in none."""
        if None not in values and not any(map(_is_wrapped, values)):
            return {self._bare: Group(list(range(len(values))), cast("list[bytes]", values))} if values else {}
        groups: dict[Shape, Group] = {}
        prefix, shape, group = b"", None, Group()
        for index, value in enumerate(values):
            if value is None:
                continue
            if prefix and value.startswith(prefix) and value.endswith(b"}"):
                payload = value[len(prefix) : -1]
            elif shape is self._bare and not value.startswith(_WRAPPED):
                payload = value
            else:
                prefix, shape, payload = self._apart(value)
                group = groups.setdefault(shape, Group())
            if payload != _NULL:
                group.indices.append(index)
                group.payloads.append(payload)
        return {shape: group for shape, group in groups.items() if group.indices}

    def shapes(self, values: Iterable[bytes | None]) -> dict[Shape, bytes]:
        """Every shape, with the payload of its first message."""
        found: dict[Shape, bytes] = {}
        prefix, shape = b"", None
        for value in values:
            if value is None or (prefix and value.startswith(prefix)):
                continue
            if shape is self._bare and self._bare in found and not value.startswith(_WRAPPED):
                continue
            prefix, shape, payload = self._apart(value)
            if payload != _NULL:
                found.setdefault(shape, payload)
        return found

    def _apart(self, value: bytes) -> tuple[bytes, Shape, bytes]:
        """What all messages of the shape begin with (empty: nothing), the shape, and the payload."""
        if not value.startswith(_SCHEMA):
            return self._in_other_order(value) if value.startswith(_WRAPPED) else (b"", self._bare, value)
        at = value.find(_PAYLOAD)
        while at >= 0:
            prefix = value[: at + len(_PAYLOAD)]
            shape = self._known.get(prefix) or self._shape(prefix)
            if shape is not None:
                return prefix, shape, value[len(prefix) : -1] if value.endswith(b"}") else value
            at = value.find(_PAYLOAD, at + 1)
        return b"", self._bare, value

    def _shape(self, prefix: bytes) -> Shape | None:
        """None where it does not stop between the schema and the payload."""
        try:
            schema = json.loads(prefix + b"null}")["schema"]
        except ValueError:
            return None
        if not isinstance(schema, dict | None):
            return None
        known = next((one for one in (self._bare, *self._known.values()) if one.schema == schema), None)
        made = self._known[prefix] = known or Shape(schema)
        return made

    def _in_other_order(self, value: bytes) -> tuple[bytes, Shape, bytes]:
        try:
            found = dict(document(value))
        except Misfit:
            return b"", self._bare, value
        if set(found) != {"payload", "schema"}:
            return b"", self._bare, value
        prefix = _SCHEMA + json_text(found["schema"]).encode() + b"," + _PAYLOAD
        shape = self._known.get(prefix) or self._shape(prefix)
        return b"", shape or self._bare, json_text(found["payload"]).encode()
