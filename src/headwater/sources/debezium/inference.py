"""Schema inference for change events: the columns and the key of a stream.

It runs before the window is read, and the mark stores the result: a window that is read again has the columns of the
first try (G5). Of events with schemas only the schemas are read; without schemas the columns are inferred from the
rows, by the rules of `sources/json/columns.py`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.kafka import DebeziumSettings
from headwater.model.bisect import bisect
from headwater.model.errors import InputError, SchemaRefused
from headwater.model.rows import CHANGE_COLUMNS
from headwater.sources.ddl_schema import ddl_of, schema_of
from headwater.sources.debezium.column_types import FieldType, field_type_of, is_wider, struct_of
from headwater.sources.debezium.envelope import (
    Envelopes,
    NoEvent,
    Shape,
    is_envelope,
    rejection_reason,
    typed_name,
    unknown_event_reason,
)
from headwater.sources.debezium.positions import known_connectors
from headwater.sources.json.columns import (
    Columns,
    SeenTypes,
    check_names,
    guess_fields,
    merge_seen_types,
    observe,
    with_new,
)
from headwater.sources.json.decoder import STRICT_ROWS, one_line_each, read_objects
from headwater.sources.json.strict import document, json_text
from headwater.sources.values import Misfit

_THREADS = 4


class ColumnInference:
    """Over the events of one stream; `complete`: the settings declare all of it, and no event needs to be read."""

    def __init__(self, stream: str, settings: DebeziumSettings, declared: str | None) -> None:
        self._stream, self._settings = stream, settings
        self._declared = schema_of(declared) if declared is not None else None
        self._values, self._keys = Envelopes(), Envelopes()
        self._shapes: dict[Shape, None] = {}
        self._rows = SeenRows()
        self._threads = ThreadPoolExecutor(_THREADS)  # starts none before there is work
        self._waiting: deque[tuple[list[bytes], Future[SeenRows]]] = deque()
        self._key: tuple[str, ...] = ()
        self.complete = self._declared is not None and bool(settings.key_of(stream))
        self._strange = ""  # why the first message that is no event should not be there

    def see(self, values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> None:
        """Some messages, in their order."""
        for shape, payload in self._keys.shapes(keys).items():
            self._see_key(_names(payload) if shape.schema is None else tuple(shape.fields()))
        for shape, payload in self._values.shapes(values).items():
            if shape not in self._shapes:
                self._see_shape(shape, payload)
            if shape.schema is None and self._declared is None:
                self._look_at(self._values.grouped(values)[shape].payloads)

    def seen(self) -> set[str]:
        """When all messages have been: the tables whose rows they are."""
        while self._waiting:
            self._see_rows(*self._waiting.popleft())
        self._threads.shutdown()
        return self._rows.tables

    def columns(self, known: Columns, reserved: set[str]) -> Columns:
        """The known columns, wider where the events need it, and new ones behind them. Raises SchemaRefused, InputError."""
        self.seen()
        if self._declared is not None:
            return {}
        columns = dict(known)
        for shape in self._shapes:
            for name, schema in shape.struct("after").items():
                self._add(columns, name, field_type_of(schema).column)
        columns = dict(with_new(columns, self._rows.seen_types))
        if not columns and self._strange:
            raise InputError(
                f"{self._stream}: no Debezium event in the window: {self._strange}",
                hint="leave the topic out, or read it with format: json",
            )
        check_names(self._stream, columns, {*reserved, *CHANGE_COLUMNS})
        return columns

    def key(self, known: Sequence[str], columns: Columns) -> tuple[str, ...]:
        """The settings' key, or that of the messages. Raises SchemaRefused where it is no longer the one that it was."""
        names = [*columns, *(self._declared.names if self._declared is not None else ())]
        wanted = self._settings.key_of(self._stream)
        key = wanted or self._key or tuple(known)
        if not wanted and known and self._key and set(known) != set(self._key):
            raise SchemaRefused(
                f"{self._stream}: the key was {', '.join(known)}, and is now {', '.join(self._key)}",
                hint=f"keep the former one, if it still names a row: debezium: {{key: [{', '.join(known)}]}}; "
                "or rebuild the table in a pipeline of another name",
            )
        if missing := [name for name in key if name not in names] if names else []:
            raise InputError(
                f"{self._stream}: {', '.join(missing)} of the key is no column", hint="write debezium: {key: [id]}"
            )
        return tuple(known) if not wanted and set(known) == set(key) else key

    def _see_key(self, names: tuple[str, ...]) -> None:
        if self._key and set(names) != set(self._key) and not self._settings.key_of(self._stream):
            raise SchemaRefused(
                f"{self._stream}: two keys in one window: {', '.join(self._key)} and {', '.join(names)}",
                hint="write the one to use: debezium: {key: [id]}",
            )
        self._key = self._key or names

    def _see_shape(self, shape: Shape, payload: bytes) -> None:
        names = shape.fields() if shape.schema is not None else _names(payload)
        if is_envelope(names):
            self._see_source(payload)
            self._shapes[shape] = None
        elif shape.schema is not None:
            with contextlib.suppress(NoEvent):
                self._strange = self._strange or unknown_event_reason(names)

    def _look_at(self, payloads: list[bytes]) -> None:
        """Beside the reading of further messages: parsers work outside of Python's lock."""
        self._waiting.append((payloads, self._threads.submit(SeenRows.seen, payloads)))
        if len(self._waiting) > _THREADS:
            self._see_rows(*self._waiting.popleft())

    def _see_rows(self, payloads: list[bytes], future: Future[SeenRows]) -> None:
        self._rows.add(future.result())
        # Without columns no message is decoded: report each that should have been an event (G8).
        for payload in payloads if not self._rows.seen_types and not self._strange else ():
            with contextlib.suppress(NoEvent):
                self._strange = self._strange or rejection_reason(payload)

    def _see_source(self, payload: bytes) -> None:
        try:
            source = fields_in(dict(document(payload)).get("source"))
        except Misfit:
            return  # a reject, when it is read
        self._rows.tables |= {name for name in [source.get("table")] if isinstance(name, str)}
        named = source.get("connector")
        if isinstance(named, str) and named not in known_connectors():
            raise InputError(
                f"{self._stream}: events of Debezium's connector for {named} cannot be ordered",
                hint=f"read those of {', '.join(known_connectors())}, or the raw events with format: json",
            )

    def _add(self, columns: dict[str, tuple[int, str]], name: str, data_type: pa.DataType) -> None:
        if name not in columns:
            columns[name] = (1 + max((number for number, _ in columns.values()), default=-1), ddl_of(data_type))
            return
        number, text = columns[name]
        known = schema_of(f"a {text}").field("a").type
        if known == data_type or is_wider(known, data_type):
            return
        if is_wider(data_type, known):
            columns[name] = (number, ddl_of(data_type))
        elif self._settings.type_changes == "new_column":
            self._add(columns, typed_name(name, data_type), data_type)
        else:
            raise SchemaRefused(
                f"{self._stream}: column {name} was {text}, and is now {ddl_of(data_type)}",
                hint=f"write debezium: {{type_changes: new_column}}: then new values land in {typed_name(name, data_type)}; "
                "or rebuild the table in a pipeline of another name",
            )


def _names(payload: bytes) -> tuple[str, ...]:
    try:
        return tuple(name for name, _ in document(payload))
    except Misfit:
        return ()


_ROWS = ("after", "before")


@dataclass
class SeenRows:
    """What has been seen in events."""

    seen_types: SeenTypes = field(default_factory=dict)  # of values, by the column
    tables: set[str] = field(default_factory=set)  # that the rows are of

    @classmethod
    def seen(cls, payloads: Sequence[bytes]) -> SeenRows:
        """In events: rows after the changes, and before."""
        rows = cls()
        for part in bisect(payloads, _guessed, smallest=STRICT_ROWS):
            if part.result is not None:
                rows.add(part.result)
            else:
                for payload in part.items:
                    rows._observe(payload)
        return rows

    def add(self, other: SeenRows) -> None:
        merge_seen_types(self.seen_types, other.seen_types)
        self.tables |= other.tables

    def _observe(self, payload: bytes) -> None:
        try:
            event = dict(document(payload))
        except Misfit:
            return
        for row in (event.get(name) for name in _ROWS):
            if is_object(row):
                observe([json_text(row).encode()], self.seen_types)
        self.tables |= {name for name in [fields_in(event.get("source")).get("table")] if isinstance(name, str)}


def _guessed(payloads: Sequence[bytes]) -> SeenRows | None:
    joined = one_line_each(payloads)
    table = None if joined is None else _read(joined, len(payloads))
    if joined is None or table is None:
        return None
    columns = [table.column(name).combine_chunks() for name in _ROWS if name in table.column_names]
    structs = [column for column in columns if pa.types.is_struct(column.type)]
    fields = [field for struct in structs for field in zip(struct.type.names, struct.flatten(), strict=True)]
    seen_types = guess_fields(fields, joined)
    return None if seen_types is None else SeenRows(seen_types, _tables(table))


def read_rows(payloads: Sequence[bytes]) -> list[pa.Field]:
    """What Arrow takes the fields of rows for; none where it could be wrong."""
    joined = one_line_each(payloads) if payloads else None
    table = None if joined is None else _read(joined, len(payloads))
    if table is None or "after" not in table.column_names:
        return []
    data_type = table.schema.field("after").type
    return list(data_type) if pa.types.is_struct(data_type) else []


def _tables(table: pa.Table) -> set[str]:
    data_type = table.schema.field("source").type if "source" in table.column_names else pa.null()
    if not pa.types.is_struct(data_type) or data_type.get_field_index("table") < 0:
        return set()
    names = pc.struct_field(table.column("source"), "table").unique().to_pylist()
    return {name for name in names if isinstance(name, str)}


def _read(joined: bytes, count: int) -> pa.Table | None:
    try:
        return read_objects(joined, count)
    except pa.ArrowInvalid:
        return None


def is_object(value: object) -> bool:
    """Of what `document` returns: its arrays are lists, its objects a subclass of list."""
    return isinstance(value, list) and type(value) is not list


def fields_in(value: Any) -> dict[str, Any]:
    """Of an object; of anything else none."""
    return dict(value) if is_object(value) else {}


class StructParser:
    """An object whose fields are columns."""

    def __init__(self, field_types: Mapping[str, FieldType]) -> None:
        self._struct = struct_of(field_types)

    def row(self, value: bytes) -> tuple[Any, ...]:
        """Raises Misfit."""
        values: dict[str, Any] = self._struct.exact(document(value))
        return tuple(values.values())

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        fields = list(self._struct.wire)
        columns = [pa.array([row[number] for row in rows], field.type) for number, field in enumerate(fields)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
