"""Parsed events of one batch on their way to change rows, with the keys of their messages.

Keys are needed for deletes, and as former keys of rows whose key changed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.kafka import DebeziumSettings
from headwater.model.rows import MISSING, UPSERTS, change_fields
from headwater.sources.debezium.column_types import (
    FieldType,
    conversion_error,
    convert_exact,
    field_type_of,
    field_type_of_column,
    fit_column,
)
from headwater.sources.debezium.envelope import Envelopes, Group, Layout, Messages, Shape, UnchangedPlaceholder
from headwater.sources.debezium.inference import StructParser
from headwater.sources.debezium.positions import Numbers, known_connectors, log_positions, positions
from headwater.sources.json.decoder import JsonDecoder

_MOMENT = pa.timestamp("us", "UTC")
_UPSERTS = pa.array(UPSERTS)
_LISTS = next(field.type for field in change_fields() if field.name == MISSING)


class ChangeBatch:
    """Events that are changes, and the indices of their messages; a row for each, in their order."""

    def __init__(
        self,
        layout: Layout,
        columns: pa.Schema,
        key: tuple[str, ...],
        events: pa.RecordBatch,
        indices: npt.NDArray[np.int64],
    ) -> None:
        self._layout, self._key, self._events, self._indices = layout, key, events, indices
        self._schema = pa.schema([*columns, *change_fields()])
        self._count = events.num_rows
        self._columns = {column.name: pa.nulls(self._count, column.type) for column in columns}
        self._missing: dict[str, pa.Array] = {}  # column → in which rows it is left out
        self._old_keys = pa.nulls(self._count, pa.string())
        self._wrong: dict[int, str] = {}  # row → why it is a reject
        self._op = events.column("op")
        self._deletes = pc.equal(self._op, "d")

    def fill_columns(self, unavailable: UnchangedPlaceholder) -> None:
        """What rows are after the changes."""
        if "after" not in self._events.schema.names:
            return
        after = self._events.column("after")
        lost = pc.and_(after.is_null(), pc.is_in(self._op, value_set=_UPSERTS))
        self._note(lost, lambda _: "an event without `after`")
        after_fields = self._struct("after")
        for column, name in self._layout.columns.items():
            wire = after_fields[name]
            left_out = unavailable.in_array(wire) if column not in self._key else None
            if left_out is not None and left_out.true_count:
                self._missing[column] = left_out
                wire = pc.if_else(left_out, pa.scalar(None, wire.type), wire)
            self._columns[column] = self._convert(column, name, wire)
        for name, reason in self._layout.unplaced.items():
            self._note(after_fields[name].is_valid(), lambda _, reason=reason: reason)  # type: ignore[misc]

    def fill_deletes(self, keys: KeyDecoder, messages: Messages) -> None:
        """The key of a delete: its message's; without one what `before` says."""
        rows = np.flatnonzero(self._deletes.to_numpy(zero_copy_only=False))
        if not len(rows):
            return
        if not self._key:
            self._fill(list(self._layout.columns), rows, self._before(list(self._layout.columns), rows))
            return
        written = [messages.key(index) for index in self._indices[rows].tolist()]
        without = np.array([key is None for key in written])
        if without.all():
            columns = self._before(self._key, rows)
        else:
            read = keys.read(written)
            columns = read.columns
            self._wrong.update({int(rows[number]): reason for number, reason in read.wrong.items()})
            if without.any():
                old = self._before(self._key, rows)
                columns = [pc.if_else(pa.array(without), *pair) for pair in zip(old, columns, strict=True)]
        for column in columns:
            for number in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
                self._wrong.setdefault(int(rows[number]), "a delete without a key")
        self._fill(self._key, rows, columns)

    def fill_old_keys(self, keys: KeyDecoder, messages: Messages) -> None:
        """Of inserts that are changes of key."""
        if not self._key:
            return
        rows = np.flatnonzero(pc.equal(self._op, "c").to_numpy(zero_copy_only=False))
        inserts = zip(rows.tolist(), self._indices[rows].tolist(), strict=True)
        moved = [(row, key) for row, index in inserts if (key := messages.old_key(index)) is not None]
        if not moved:
            return
        read = keys.read([key for _, key in moved])
        texts: list[str | None] = [None] * self._count
        for number, (row, _) in enumerate(moved):
            texts[row] = key_as_json(read.columns, number)
        self._wrong.update({moved[number][0]: f"the former {reason}" for number, reason in read.wrong.items()})
        self._old_keys = pa.array(texts, pa.string())

    def finished(self, reject: Callable[[int, str], None]) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The rows, with the indices of their messages; `reject` receives what is wrong."""
        position, moment, transaction = self._source()
        changes = [self._op, position, moment, transaction, self._missing_names(), self._old_keys]
        rows = pa.RecordBatch.from_arrays([*self._columns.values(), *changes], schema=self._schema)
        if not self._wrong:
            return rows, self._indices
        for row, reason in sorted(self._wrong.items()):
            reject(int(self._indices[row]), reason)
        good = np.ones(self._count, np.bool_)
        good[list(self._wrong)] = False
        return rows.filter(pa.array(good)), self._indices[good]

    def _source(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Position, time and transaction."""
        source = self._struct("source") | self._struct("transaction")
        reads = pc.equal(self._op, "r").to_numpy(zero_copy_only=False)
        position = pa.nulls(self._count, pa.decimal128(38, 0))
        for connector in source["connector"].unique().to_pylist():
            ours = pc.equal(source["connector"], connector).fill_null(connector is None)
            if connector not in known_connectors():
                self._note(ours, self._unknown)
                continue
            major, minor = log_positions(connector, source)
            packed_positions, bad = positions(major, minor, reads)
            self._note(
                pa.array(bad) if ours.true_count == self._count else pc.and_(pa.array(bad), ours),
                self._without_position,
            )
            position = (
                packed_positions if ours.true_count == self._count else pc.if_else(ours, packed_positions, position)
            )
            if connector != "postgresql" and self._key:
                self._reject_unordered(major, minor, ours.to_numpy(zero_copy_only=False) & ~reads)
        if position.null_count:
            position = position.fill_null(0)  # of rows that are rejected
        micros = pc.coalesce(source["ts_us"], pc.multiply(source["ts_ms"], 1_000))
        transaction = pc.coalesce(source["txId"].cast(pa.string()), source["gtid"])
        return position, micros.view(_MOMENT), transaction

    def _reject_unordered(self, major: Numbers, minor: Numbers, changes: npt.NDArray[np.bool_]) -> None:
        """Changes of one row whose order the connector does not tell."""
        suspects = at_one_position(major, minor, changes)
        if not len(suspects):
            return
        indices = pa.array(suspects)
        keys = zip(*(self._columns[name].take(indices).to_pylist() for name in self._key), strict=True)
        has_after = "after" in self._events.schema.names
        after = self._events.column("after") if has_after else pa.nulls(self._count)
        events = [one.take(indices).to_pylist() for one in (self._op, after)]
        numbers = major[suspects].tolist(), minor[suspects].tolist()
        for index in unordered([Change(*one) for one in zip(*numbers, keys, *events, strict=True)]):
            row = int(suspects[index])
            self._wrong.setdefault(row, self._unordered(row))

    def _unordered(self, row: int) -> str:
        source = self._events.column("source")[row].as_py()
        return (
            f"source: several changes of the row stand at {source['file']}:{source['pos']}, and nothing tells their order: "
            "the server compresses transactions; set provide.transaction.metadata to true in the connector"
        )

    def _unknown(self, row: int) -> str:
        named = self._events.column("source")[row]["connector"].as_py() or "no connector"
        return f"source: events of {named} cannot be ordered, only those of {', '.join(known_connectors())}"

    def _without_position(self, row: int) -> str:
        said = {name: value for name, value in self._events.column("source")[row].as_py().items() if value is not None}
        return f"source: no position in the log in {said}"

    def _before(self, columns: Sequence[str], rows: npt.NDArray[np.int64]) -> list[pa.Array]:
        before = self._struct("before") if "before" in self._events.schema.names else {}
        arrays = []
        for column in columns:
            field, take = self._layout.columns.get(column, ""), pa.array(rows)
            if field not in before:
                arrays.append(pa.nulls(len(rows), self._schema.field(column).type))
            else:
                arrays.append(self._convert(column, field, before[field].take(take), rows))
        return arrays

    def _fill(self, names: Sequence[str], rows: npt.NDArray[np.int64], columns: Sequence[pa.Array]) -> None:
        """Put values into these rows of columns."""
        at = np.arange(self._count)
        at[rows] = self._count + np.arange(len(rows))
        for name, column in zip(names, columns, strict=True):
            self._columns[name] = pa.concat_arrays([self._columns[name], column]).take(pa.array(at))

    def _convert(self, column: str, field: str, wire: pa.Array, rows: npt.NDArray[np.int64] | None = None) -> pa.Array:
        field_type = self._layout.field_types[field]
        converted, bad = convert_exact(field_type, wire)
        for index in bad:
            self._wrong.setdefault(
                index if rows is None else int(rows[index]), conversion_error(column, field_type, wire[index])
            )
        return converted

    def _missing_names(self) -> pa.Array:
        names: list[list[str] | None] = [None] * self._count
        for column, left_out in self._missing.items():
            for row in np.flatnonzero(left_out.to_numpy(zero_copy_only=False)):
                names[row] = [*(names[row] or ()), column]
        return pa.array(names, _LISTS)

    def _note(self, which: pa.Array, reason: Callable[[int], str]) -> None:
        if which.true_count:
            for row in np.flatnonzero(which.fill_null(fill_value=False).to_numpy(zero_copy_only=False)).tolist():
                self._wrong.setdefault(row, reason(row))

    def _struct(self, name: str) -> dict[str, pa.Array]:
        column = self._events.column(name)
        return dict(zip([field.name for field in column.type], column.flatten(), strict=True))


def at_one_position(major: Numbers, minor: Numbers, changes: npt.NDArray[np.bool_]) -> Numbers:
    """Every change at a position where numbers do not grow: the few that may have no order, most often none.

    Reads of a snapshot are no changes: they all stand at one position, and none is of a row that another is of.
    """
    rows = np.flatnonzero(changes)
    major, minor = major[rows], minor[rows]
    behind = (major[1:] == major[:-1]) & (minor[1:] <= minor[:-1]) & (major[1:] >= 0)
    return rows[np.isin(major, major[1:][behind])] if behind.any() else rows[:0]


@dataclass(frozen=True)
class Change:
    """An event, as far as its order goes."""

    position: int  # in the log
    number: int  # at that position
    key: tuple[Any, ...]
    op: str
    after: Any


def unordered(changes: Sequence[Change]) -> Collection[int]:
    """Which of the changes, in the order in which they came, are of one row and have no known order."""
    of_row: dict[tuple[int, tuple[Any, ...]], list[int]] = defaultdict(list)
    for index, change in enumerate(changes):
        of_row[change.position, change.key].append(index)
    indices_without_order: list[int] = []
    for indices in of_row.values():
        once: list[Change] = []
        for index in indices:
            if changes[index] not in once:
                once.append(changes[index])
        if any(later.number <= one.number for one, later in pairwise(once)):
            indices_without_order += indices
    return indices_without_order


@dataclass
class Keys:
    """A key's columns for some messages, NULL for a message without a key; `wrong`: index of a message → why its key cannot be read."""

    columns: list[pa.Array]
    wrong: dict[int, str] = field(default_factory=dict)


class KeyDecoder:
    """Reads the keys of one stream's messages."""

    def __init__(self, key: Sequence[str], types: Mapping[str, pa.DataType], settings: DebeziumSettings) -> None:
        self._types = {name: types[name] for name in key}
        self._settings, self._envelopes = settings, Envelopes()
        self._readers: dict[Shape, tuple[dict[str, FieldType], JsonDecoder]] = {}

    def read(self, keys: Sequence[bytes | None]) -> Keys:
        """In the order of the key's columns. A message without a key has NULLs."""
        decoded = Keys([])
        parts: list[tuple[list[int], list[pa.Array]]] = []
        for shape, group in self._envelopes.grouped(keys).items():
            parts.append(self._group(shape, group, decoded.wrong))
        indices = [index for part, _ in parts for index in part]
        at = np.full(len(keys), -1)
        at[indices] = np.arange(len(indices))
        take = pa.array(at, mask=at < 0)
        for number, data_type in enumerate(self._types.values()):
            column = pa.concat_arrays([columns[number] for _, columns in parts]) if parts else pa.nulls(0, data_type)
            decoded.columns.append(column.take(take))
        return decoded

    def _group(self, shape: Shape, group: Group, wrong: dict[int, str]) -> tuple[list[int], list[pa.Array]]:
        field_types, values = self._reader(shape)
        parsed = values.parse(group.payloads)
        wrong.update({group.indices[number]: f"key: {reason}" for number, reason in parsed.rejected})
        without = {number for number, _ in parsed.rejected}
        indices = [index for number, index in enumerate(group.indices) if number not in without]
        columns = []
        for name, field_type in field_types.items():
            chunks = [batch.column(name) for batch in parsed.batches]
            wire = pa.concat_arrays(chunks) if chunks else pa.nulls(0, field_type.wire)
            column, bad = convert_exact(field_type, wire)
            wrong.update(
                {indices[number]: f"key: {conversion_error(name, field_type, wire[number])}" for number in bad}
            )
            columns.append(column)
        return indices, columns

    def _reader(self, shape: Shape) -> tuple[dict[str, FieldType], JsonDecoder]:
        if shape not in self._readers:
            said = shape.fields()
            field_types = {name: self._field_type(name, said.get(name)) for name in self._types}
            schema = pa.schema([pa.field(name, field_type.wire) for name, field_type in field_types.items()])
            self._readers[shape] = field_types, JsonDecoder(schema, StructParser(field_types))
        return self._readers[shape]

    def _field_type(self, name: str, said: dict[str, Any] | None) -> FieldType:
        column, settings = self._types[name], self._settings.of_column(name)
        fitted = fit_column(field_type_of(said), column, settings) if said is not None else None
        return fitted or field_type_of_column(column, settings)


def key_as_json(columns: Sequence[pa.Array], row: int) -> str:
    """A key as a JSON array, its values by the rules by which JSON is read (`sources/json/strict.py`)."""
    return json.dumps([_plain(column[row].as_py()) for column in columns], ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    import base64
    import datetime as dt

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value if isinstance(value, bool | int | float | str | None) else str(value)
