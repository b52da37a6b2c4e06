"""What the events of a window say of their stream: its columns, and its key.

Looked at before the window is read, and kept in the mark: a window that is read again has the columns of the first try
(G5). Events with schemas are looked at by schema, not one by one; without schemas the columns are found in the rows, by
the rules of `sources/json/found.py`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from headwater.config.debezium import DebeziumSettings
from headwater.model.changes import CHANGE_COLUMNS
from headwater.model.errors import InputError, SchemaRefused
from headwater.sources.ddl_schema import ddl_of, schema_of
from headwater.sources.debezium.connect_types import kind_of
from headwater.sources.debezium.envelope import Envelopes, Shape
from headwater.sources.debezium.found_values import Rows, fields_in
from headwater.sources.debezium.kinds import is_wider
from headwater.sources.debezium.not_rows import Nothing, is_envelope, why_no_event, why_none
from headwater.sources.debezium.positions import known_connectors
from headwater.sources.debezium.renamed import renamed
from headwater.sources.json.found import Columns, check_names, with_new
from headwater.sources.json.strict import Misfit, document

_THREADS = 4
_KEY = " key"  # behind a stream's name: Kafka's topics have no space in theirs


def key_entry(stream: str) -> str:
    """Under which name a mark holds the key of a stream, beside its columns."""
    return stream + _KEY


class Look:
    """At the events of one stream; `complete`: the settings say all of it, and nobody needs to look."""

    def __init__(self, stream: str, settings: DebeziumSettings, declared: str | None) -> None:
        self._stream, self._settings = stream, settings
        self._declared = schema_of(declared) if declared is not None else None
        self._values, self._keys = Envelopes(), Envelopes()
        self._shapes: dict[Shape, None] = {}
        self._rows = Rows()
        self._threads = ThreadPoolExecutor(_THREADS)  # starts none before there is work
        self._waiting: deque[tuple[list[bytes], Future[Rows]]] = deque()
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

    def columns(self, known: Columns, taken: set[str]) -> Columns:
        """The known columns, wider where the events need it, and new ones behind them. Raises SchemaRefused, InputError."""
        self.seen()
        if self._declared is not None:
            return {}
        made = dict(known)
        for shape in self._shapes:
            for name, schema in shape.struct("after").items():
                self._add(made, name, kind_of(schema).column)
        made = dict(with_new(made, self._rows.kinds))
        if not made and self._strange:
            raise InputError(
                f"{self._stream}: no Debezium event in the window: {self._strange}",
                hint="leave the topic out, or read it with format: json",
            )
        check_names(self._stream, made, {*taken, *CHANGE_COLUMNS})
        return made

    def key(self, known: Sequence[str], columns: Columns) -> tuple[str, ...]:
        """The settings' key, or that of the messages. Raises SchemaRefused where it is no longer the one that it was."""
        names = [*columns, *(self._declared.names if self._declared is not None else ())]
        wanted = self._settings.key_of(self._stream)
        found = wanted or self._key or tuple(known)
        if not wanted and known and self._key and set(known) != set(self._key):
            raise SchemaRefused(
                f"{self._stream}: the key was {', '.join(known)}, and is now {', '.join(self._key)}",
                hint=f"go on with the former one, if it still names a row: debezium: {{key: [{', '.join(known)}]}}; "
                "or rebuild the table in a pipeline of another name",
            )
        if missing := [name for name in found if name not in names] if names else []:
            raise InputError(
                f"{self._stream}: {', '.join(missing)} of the key is no column", hint="write debezium: {key: [id]}"
            )
        return tuple(known) if not wanted and set(known) == set(found) else found

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
            with contextlib.suppress(Nothing):
                self._strange = self._strange or why_no_event(names)

    def _look_at(self, payloads: list[bytes]) -> None:
        """Beside the reading of further messages: parsers work outside of Python's lock."""
        self._waiting.append((payloads, self._threads.submit(Rows.seen, payloads)))
        if len(self._waiting) > _THREADS:
            self._see_rows(*self._waiting.popleft())

    def _see_rows(self, payloads: list[bytes], found: Future[Rows]) -> None:
        self._rows.add(found.result())
        # As long as there are no columns nobody reads the messages: none that should be an event may pass unseen (G8).
        for payload in payloads if not self._rows.kinds and not self._strange else ():
            with contextlib.suppress(Nothing):
                self._strange = self._strange or why_none(payload)

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

    def _add(self, columns: dict[str, tuple[int, str]], name: str, kind: pa.DataType) -> None:
        if name not in columns:
            columns[name] = (1 + max((number for number, _ in columns.values()), default=-1), ddl_of(kind))
            return
        number, text = columns[name]
        held = schema_of(f"a {text}").field("a").type
        if held == kind or is_wider(held, kind):
            return
        if is_wider(kind, held):
            columns[name] = (number, ddl_of(kind))
        elif self._settings.type_changes == "new_column":
            self._add(columns, renamed(name, kind), kind)
        else:
            raise SchemaRefused(
                f"{self._stream}: column {name} was {text}, and is now {ddl_of(kind)}",
                hint=f"write debezium: {{type_changes: new_column}}: then new values land in {renamed(name, kind)}; "
                "or rebuild the table in a pipeline of another name",
            )


def _names(payload: bytes) -> tuple[str, ...]:
    try:
        return tuple(name for name, _ in document(payload))
    except Misfit:
        return ()


def known_key(entry: Mapping[str, tuple[int, str]] | None) -> tuple[str, ...]:
    """A key as a mark holds it."""
    return tuple(sorted(entry or {}, key=lambda name: (entry or {})[name]))


def entry_of(key: Sequence[str]) -> dict[str, tuple[int, str]]:
    return {name: (number, "key") for number, name in enumerate(key)}
