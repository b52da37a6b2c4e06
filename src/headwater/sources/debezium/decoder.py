"""Decodes change events into rows: the table's columns, operation and position, and rejects (G8).

Events of one shape are decoded together. Arrow's parser reads what is needed of the envelopes (`JsonDecoder`); then
every column is converted as a whole. A value that does not convert makes its message a reject.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.kafka import DebeziumSettings
from headwater.model.rows import change_fields
from headwater.sources.debezium.change_batch import ChangeBatch, KeyDecoder
from headwater.sources.debezium.column_types import ExactParser, FieldType, array_of, same, struct_of, text
from headwater.sources.debezium.envelope import (
    OPS,
    Envelopes,
    Group,
    Layout,
    Messages,
    NoEvent,
    Shape,
    UnchangedPlaceholder,
    is_envelope,
    layout_of,
    rejection_reason,
    unknown_event_reason,
)
from headwater.sources.debezium.inference import StructParser, read_rows
from headwater.sources.debezium.positions import SOURCE, TRANSACTION, known_connectors
from headwater.sources.json.decoder import JsonDecoder


@dataclass(frozen=True)
class EventFormat:
    """How the events of one stream become rows; sent to the executors."""

    stream: str
    columns: pa.Schema  # the table's
    key: tuple[str, ...]
    declared: bool = False  # the settings declare the columns: other fields are ignored
    settings: DebeziumSettings = field(default_factory=DebeziumSettings)

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, before what the transport knows."""
        return pa.schema([*self.columns, *change_fields()])


@dataclass
class Decoded:
    """The rows of some messages, and the messages that should have been events and are not."""

    rows: pa.RecordBatch
    message_indices: np.ndarray  # the index of each row's message
    rejected: list[tuple[int, str]]  # index of a message, reason


class EventDecoder:
    """Decodes the events of one stream, from one thread."""

    def __init__(self, reading: EventFormat) -> None:
        self._reading, self._schema = reading, reading.schema
        self._envelopes = Envelopes()
        # The decoder; or the reason for rejects; None: messages of this shape are not events.
        self._shapes: dict[Shape, ShapeDecoder | SchemalessDecoder | str | None] = {}

    def decode(self, messages: Messages) -> Decoded:
        """A row per event, in the order of the messages."""
        rejected: list[tuple[int, str]] = []
        parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
        for shape, group in self._envelopes.grouped(messages.values).items():
            parts += self._group(shape, group, messages, lambda index, why: rejected.append((index, why)))
        rows, message_indices = self._joined(parts)
        return Decoded(rows, message_indices, sorted(rejected))

    def _group(
        self, shape: Shape, group: Group, messages: Messages, reject: Callable[[int, str], None]
    ) -> list[tuple[pa.RecordBatch, np.ndarray]]:
        if shape not in self._shapes:
            self._shapes[shape] = self._opened(shape)
        known = self._shapes[shape]
        if isinstance(known, SchemalessDecoder):
            return known.rows(group, messages, reject)
        if isinstance(known, ShapeDecoder):
            return [known.rows(group, messages, reject)]
        if known is not None:
            for index in group.indices:
                reject(index, known)
        return []

    def _opened(self, shape: Shape) -> ShapeDecoder | SchemalessDecoder | str | None:
        known = self._reading
        layout = layout_of(shape, known.columns, known.settings, declared=known.declared)
        if shape.schema is None and not known.declared:
            return SchemalessDecoder(
                lambda field_types: ShapeDecoder(
                    layout.with_field_types(field_types), known.columns, known.key, known.settings
                )
            )
        if shape.schema is None or is_envelope(shape.fields()):
            return ShapeDecoder(layout, known.columns, known.key, known.settings)
        try:
            return unknown_event_reason(shape.fields())
        except NoEvent:
            return None

    def _joined(self, parts: Sequence[tuple[pa.RecordBatch, np.ndarray]]) -> tuple[pa.RecordBatch, np.ndarray]:
        if not parts:
            return pa.RecordBatch.from_pylist([], self._schema), np.zeros(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        message_indices = np.concatenate([indices for _, indices in parts])
        order = np.argsort(message_indices)
        return pa.concat_batches([rows for rows, _ in parts]).take(pa.array(order)), message_indices[order]


Reject = Callable[[int, str], None]
Rows = tuple[pa.RecordBatch, np.ndarray]

_OPS = pa.array(OPS)


class ShapeDecoder:
    """For one shape of messages and one set of columns."""

    def __init__(self, layout: Layout, columns: pa.Schema, key: tuple[str, ...], settings: DebeziumSettings) -> None:
        self._layout, self._columns, self._key = layout, columns, key
        self._unavailable = UnchangedPlaceholder(settings.unavailable)
        self._keys = KeyDecoder(key, dict(zip(columns.names, columns.types, strict=True)), settings)
        field_types = self._envelope()
        schema = pa.schema([pa.field(name, field_type.wire) for name, field_type in field_types.items()])
        self._values = JsonDecoder(schema, StructParser(field_types))

    def _envelope(self) -> dict[str, FieldType]:
        """What is read of an event. Of `before` only the key is trusted, and all of it where a table has no key."""
        columns = self._layout.columns
        old = {columns[name] for name in (self._key or columns) if name in columns}
        rows = {
            "before": {name: field_type for name, field_type in self._layout.field_types.items() if name in old},
            "after": self._layout.field_types,
        }
        structs = {name: struct_of(field_types) for name, field_types in rows.items() if field_types}
        return {**structs, "source": _SOURCE, "transaction": _TRANSACTION, "op": same(pa.string())}

    @property
    def strict_only(self) -> bool:
        """True if Arrow refuses most events."""
        return self._values.strict_only

    def rows(self, group: Group, messages: Messages, reject: Reject) -> Rows:
        """Of the messages of the group, with the index of each row's message."""
        events, indices = self._parsed(group, reject)
        batch = ChangeBatch(self._layout, self._columns, self._key, events, indices)
        batch.fill_columns(self._unavailable)
        batch.fill_deletes(self._keys, messages)
        batch.fill_old_keys(self._keys, messages)
        return batch.finished(reject)

    def _parsed(self, group: Group, reject: Reject) -> tuple[pa.RecordBatch, np.ndarray]:
        """The events that are changes, and the indices of their messages."""
        parsed = self._values.parse(group.payloads)
        batches = parsed.batches or [pa.RecordBatch.from_pylist([], self._values.schema)]
        events = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        for number, reason in parsed.rejected:
            _reject(group, number, reason, reject)
        accepted = np.delete(np.arange(len(group.indices)), [number for number, _ in parsed.rejected])
        indices = np.array(group.indices, np.int64)
        changes = pc.is_in(events.column("op"), value_set=_OPS)
        if changes.false_count:
            is_change = changes.to_numpy(zero_copy_only=False)
            for number in accepted[~is_change].tolist():
                _reject(group, number, "", reject)
            events, accepted = events.filter(changes), accepted[is_change]
        return events, indices[accepted]


def _reject(group: Group, number: int, reason: str, reject: Reject) -> None:
    try:
        reject(group.indices[number], rejection_reason(group.payloads[number], reason))
    except NoEvent:
        return


def _source_exact() -> ExactParser:
    """The source of a connector that we do not know may have other types: its name is all that matters then."""
    strict = struct_of({field.name: same(field.type) for field in SOURCE}).exact

    def exact(value: Any) -> Any:
        named = dict(value).get("connector") if isinstance(value, list) and type(value) is not list else None
        return strict(value) if named in known_connectors() or not isinstance(named, str) else {"connector": named}

    return exact


_SOURCE = FieldType(SOURCE, SOURCE, _source_exact())
_TRANSACTION = struct_of({field.name: same(field.type) for field in TRANSACTION})


_SAMPLE = 500
_ELEMENTS = {pa.string(): text(), pa.null(): text(), pa.int64(): same(pa.int64()), pa.bool_(): same(pa.bool_())}

Make = Callable[[Mapping[str, FieldType]], ShapeDecoder]


class SchemalessDecoder:
    """Decodes events without schemas. `make` makes the decoder, with other types for some fields.

    A sample of the events says which fields hold arrays. Arrow reads those as arrays, not as texts; the plain decoder
    reads the events that do not fit.
    """

    def __init__(self, make: Make) -> None:
        self._make, self._plain = make, make({})
        self._arrays: dict[str, pa.DataType] | None = None  # None: no sample yet
        self._with_arrays: ShapeDecoder | None = None

    def rows(self, group: Group, messages: Messages, reject: Reject) -> list[Rows]:
        """Of the messages of the group."""
        if self._arrays is None or self._plain.strict_only:
            self._sample(group.payloads[:_SAMPLE])
        if self._with_arrays is None:
            return [self._plain.rows(group, messages, reject)]
        refused: list[int] = []
        first = self._with_arrays.rows(group, messages, lambda index, _: refused.append(index))
        if not refused:
            return [first]
        numbers = np.searchsorted(group.indices, sorted(refused)).tolist()
        rest = Group(sorted(refused), [group.payloads[number] for number in numbers])
        return [first, self._plain.rows(rest, messages, reject)]

    def _sample(self, payloads: Sequence[bytes]) -> None:
        arrays = array_fields(payloads)
        if arrays != self._arrays:
            self._arrays = arrays
            self._with_arrays = (
                self._make({name: _json(field_type) for name, field_type in arrays.items()}) if arrays else None
            )


def array_fields(payloads: Sequence[bytes]) -> dict[str, pa.DataType]:
    """Fields of rows that hold arrays of texts, of whole numbers or of booleans, and what is in those."""
    return {
        field.name: field.type.value_type
        for field in read_rows(payloads)
        if pa.types.is_list(field.type) and field.type.value_type in _ELEMENTS
    }


def _json(element: pa.DataType) -> FieldType:
    """The array's JSON text, as `json_text` would make it."""
    field_type = array_of(_ELEMENTS[element])

    def convert(array: pa.Array) -> pa.Array:
        texts = [None if one is None else _written(one) for one in array.to_pylist()]
        return pa.array(texts, pa.string())

    return FieldType(field_type.wire, pa.string(), field_type.exact, convert)


def _written(values: list[object]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
