"""The envelope of an event: its schema, its payload, the columns of its fields, and what stands for unchanged values.

All messages of one shape begin with the same bytes, their schema. Those are parsed once; of the others only the
payload is.

PostgreSQL does not send large values (TOAST) that an update left alone. In a text the placeholder stands as it is; in
bytes as their base64 or hex; in an array of texts it is the one element; an array of numbers holds its letters'
codes, one of UUIDs a UUID made of it; an hstore has it as its one key and value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.kafka import DebeziumSettings
from headwater.model.types import retyped_name
from headwater.sources.ddl_schema import ddl_of
from headwater.sources.debezium.column_types import FieldType, field_type_of, field_type_of_column, fit_column
from headwater.sources.json.strict import document, json_text
from headwater.sources.values import Misfit

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
        payloads: dict[Shape, bytes] = {}
        prefix, shape = b"", None
        for value in values:
            if value is None or (prefix and value.startswith(prefix)):
                continue
            if shape is self._bare and self._bare in payloads and not value.startswith(_WRAPPED):
                continue
            prefix, shape, payload = self._apart(value)
            if payload != _NULL:
                payloads.setdefault(shape, payload)
        return payloads

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
        shape = self._known[prefix] = known or Shape(schema)
        return shape

    def _in_other_order(self, value: bytes) -> tuple[bytes, Shape, bytes]:
        try:
            wrapper = dict(document(value))
        except Misfit:
            return b"", self._bare, value
        if set(wrapper) != {"payload", "schema"}:
            return b"", self._bare, value
        prefix = _SCHEMA + json_text(wrapper["schema"]).encode() + b"," + _PAYLOAD
        shape = self._known.get(prefix) or self._shape(prefix)
        return b"", shape or self._bare, json_text(wrapper["payload"]).encode()


OPS = ("c", "u", "d", "r", "t")
_MESSAGE = "m"  # what pg_logical_emit_message wrote
_MOMENTS = {"ts_ms", "ts_us", "ts_ns"}
_TRANSACTION = {"status", "id"}
_SCHEMA_CHANGE = {"ddl", "tableChanges", "historyRecord"}

FLATTENED = (
    "no change event: it has neither `op` nor `source`, as flattened ones; "
    "take the transform ExtractNewRecordState out of the connector"
)


class NoEvent(Exception):
    """A message that brings no row, and should not."""


def is_envelope(names: Collection[str]) -> bool:
    return "op" in names and "source" in names


def rejection_reason(payload: bytes, reason: str = "") -> str:
    """Why a message is a reject; `reason`, if it is an event. Raises NoEvent where it belongs to no row."""
    if payload == b"null":
        raise NoEvent
    try:
        event = dict(document(payload))
    except Misfit as misfit:
        return str(misfit)
    if not is_envelope(event):
        return unknown_event_reason(event)
    op: Any = event["op"]
    if op == _MESSAGE:
        raise NoEvent
    return reason if op in OPS else f"op: {op!r} is not one of {', '.join(OPS)}"


def unknown_event_reason(names: Collection[str]) -> str:
    """The same for a message that is no change event, by its fields."""
    fields = set(names)
    if fields <= _MOMENTS or fields >= _TRANSACTION or ("source" in fields and fields & _SCHEMA_CHANGE):
        raise NoEvent  # a heartbeat, a transaction's begin or end, a change of the schema
    return FLATTENED


OLD_KEY_HEADER = "__debezium.oldkey"


@dataclass(frozen=True)
class Messages:
    """Events, in the order in which they are there. Keys and headers are asked for only where they are needed."""

    values: Sequence[bytes | None]
    key: Callable[[int], bytes | None]  # of the message at that index
    old_key: Callable[[int], bytes | None]  # the header of an insert that is a change of key


@dataclass
class Layout:
    """For messages of one shape, and the columns of a stream."""

    field_types: dict[str, FieldType] = field(default_factory=dict)  # of the fields that are read
    columns: dict[str, str] = field(default_factory=dict)  # column → field
    unplaced: dict[str, str] = field(default_factory=dict)  # field → why no column can hold its values

    def with_field_types(self, field_types: Mapping[str, FieldType]) -> Layout:
        """The same where some of the fields that are texts hold something else."""
        texts = {
            name: field_type
            for name, field_type in field_types.items()
            if name in self.field_types and self.field_types[name].column == field_type.column
        }
        return replace(self, field_types={**self.field_types, **texts})


def layout_of(shape: Shape, columns: pa.Schema, settings: DebeziumSettings, *, declared: bool) -> Layout:
    """By what the messages say of themselves, or else by the columns' types and the settings."""
    layout = Layout()
    if shape.schema is None:
        layout.field_types = {
            column.name: field_type_of_column(column.type, settings.of_column(column.name)) for column in columns
        }
        layout.columns = {name: name for name in layout.field_types}
        return layout
    types = dict(zip(columns.names, columns.types, strict=True))
    for name, schema in shape.struct("after").items():
        field_type = field_type_of(schema)
        for column in (name, typed_name(name, field_type.column)):
            type_ = types.get(column)
            override = settings.of_column(column) if declared else None
            fitted = fit_column(field_type, type_, override) if type_ is not None else None
            if fitted is not None:
                layout.field_types[name], layout.columns[column] = fitted, name
                break
        else:
            # With declared columns other fields are ignored; a field that inference has not seen is never dropped (G8).
            if name in types or not declared:
                layout.field_types[name] = field_type
                there = f"the column is {ddl_of(types[name])}" if name in types else "there is no such column"
                layout.unplaced[name] = f"{name}: the event has {ddl_of(field_type.column)}, {there}"
    return layout


def typed_name(name: str, data_type: pa.DataType) -> str:
    """`amount__string`, `amount__decimal_12_2`."""
    return retyped_name(name, ddl_of(data_type))


@dataclass(frozen=True)
class UnchangedPlaceholder:
    """The placeholder in all its forms."""

    text: str
    texts: pa.Array = field(init=False)
    numbers: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        data = self.text.encode()
        alone = [self.text, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()]
        alone.append(str(_named_by(data)))
        lists = [json.dumps([one], ensure_ascii=False) for one in alone]
        lists.append(json.dumps(list(data), separators=(",", ":")))
        pair = json.dumps({self.text: self.text}, separators=(",", ":"), ensure_ascii=False)
        object.__setattr__(self, "texts", pa.array([*dict.fromkeys([*alone, *lists, pair])], pa.string()))
        object.__setattr__(self, "numbers", tuple(data))

    def in_array(self, array: pa.Array) -> pa.Array | None:
        """Which values are it; None: values of this type cannot be."""
        data_type = array.type
        if pa.types.is_string(data_type):
            return pc.is_in(array, value_set=self.texts)
        if pa.types.is_map(data_type):
            return pa.array([bool(one) and len(one) == 1 and one[0][0] == self.text for one in array.to_pylist()])
        if pa.types.is_list(data_type) and pa.types.is_string(data_type.value_type):
            return self._alone(array, array.flatten(), 1)
        if pa.types.is_list(data_type) and pa.types.is_integer(data_type.value_type):
            return self._alone(array, array.flatten(), len(self.numbers))
        return None

    def _alone(self, array: pa.Array, values: pa.Array, length: int) -> pa.Array:
        """Lists of that length that hold nothing else; `values` are those of all lists."""
        lengths = np.asarray(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        rows = np.flatnonzero(lengths == length)
        begins = (np.cumsum(lengths) - lengths)[rows]
        elements = values.take(pa.array((begins[:, None] + np.arange(length)).ravel(), pa.int64()))
        if pa.types.is_string(elements.type):
            same = pc.is_in(elements, value_set=self.texts).to_numpy(zero_copy_only=False).reshape(-1, length)
        else:
            numbers = elements.fill_null(-1).to_numpy(zero_copy_only=False).reshape(-1, length)
            same = numbers == np.array(self.numbers)
        matches = np.zeros(len(array), np.bool_)
        matches[rows] = same.all(axis=1)
        return pa.array(matches)


def _named_by(data: bytes) -> uuid.UUID:
    """Java's `UUID.nameUUIDFromBytes`: version 3 without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
