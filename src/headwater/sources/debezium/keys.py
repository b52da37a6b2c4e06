"""Keys of messages as columns: of deletes, and of rows whose key was another before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.config.debezium import DebeziumSettings
from headwater.sources.debezium.closer import StructRows
from headwater.sources.debezium.connect_types import kind_of
from headwater.sources.debezium.envelope import Envelopes, Group, Shape
from headwater.sources.debezium.kept import kept, why_not
from headwater.sources.debezium.kinds import Kind, fitted, kind_for
from headwater.sources.json.values import JsonValues


@dataclass
class Keys:
    """A key's columns for some messages, NULL where there is none; `wrong`: the place of a message → why it has none."""

    columns: list[pa.Array]
    wrong: dict[int, str] = field(default_factory=dict)


class KeyRows:
    """Reads the keys of one stream's messages."""

    def __init__(self, key: Sequence[str], types: Mapping[str, pa.DataType], settings: DebeziumSettings) -> None:
        self._types = {name: types[name] for name in key}
        self._settings, self._envelopes = settings, Envelopes()
        self._readers: dict[Shape, tuple[dict[str, Kind], JsonValues]] = {}

    def read(self, keys: Sequence[bytes | None]) -> Keys:
        """In the order of the key's columns. A message without a key has NULLs."""
        made = Keys([])
        parts: list[tuple[list[int], list[pa.Array]]] = []
        for shape, group in self._envelopes.grouped(keys).items():
            parts.append(self._group(shape, group, made.wrong))
        places = [place for part, _ in parts for place in part]
        at = np.full(len(keys), -1)
        at[places] = np.arange(len(places))
        take = pa.array(at, mask=at < 0)
        for number, kind in enumerate(self._types.values()):
            held = pa.concat_arrays([columns[number] for _, columns in parts]) if parts else pa.nulls(0, kind)
            made.columns.append(held.take(take))
        return made

    def _group(self, shape: Shape, group: Group, wrong: dict[int, str]) -> tuple[list[int], list[pa.Array]]:
        kinds, values = self._reader(shape)
        parsed = values.parse(group.payloads)
        wrong.update({group.indices[place]: f"key: {reason}" for place, reason in parsed.rejected})
        without = {place for place, _ in parsed.rejected}
        places = [index for place, index in enumerate(group.indices) if place not in without]
        columns = []
        for name, kind in kinds.items():
            chunks = [batch.column(name) for batch in parsed.batches]
            wire = pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind.wire)
            column, bad = kept(kind, wire)
            wrong.update({places[place]: f"key: {why_not(name, kind, wire[place])}" for place in bad})
            columns.append(column)
        return places, columns

    def _reader(self, shape: Shape) -> tuple[dict[str, Kind], JsonValues]:
        if shape not in self._readers:
            said = shape.fields()
            kinds = {name: self._kind(name, said.get(name)) for name in self._types}
            schema = pa.schema([pa.field(name, kind.wire) for name, kind in kinds.items()])
            self._readers[shape] = kinds, JsonValues(schema, StructRows(kinds))
        return self._readers[shape]

    def _kind(self, name: str, said: dict[str, Any] | None) -> Kind:
        column, settings = self._types[name], self._settings.of_column(name)
        made = fitted(kind_of(said), column, settings) if said is not None else None
        return made or kind_for(column, settings)


def as_json(columns: Sequence[pa.Array], row: int) -> str:
    """A key as a JSON array, its values by the rules by which JSON is read (`sources/json/strict.py`)."""
    return json.dumps([_plain(column[row].as_py()) for column in columns], ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    import base64  # noqa: PLC0415 - keys of bytes are rare
    import datetime as dt  # noqa: PLC0415

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value if isinstance(value, bool | int | float | str | None) else str(value)
