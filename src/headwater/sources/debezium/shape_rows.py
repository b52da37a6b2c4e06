"""The rows of events of one shape, many at once.

Arrow's parser reads what is needed of the envelopes (`JsonValues`); then every column is converted as a whole. A value that
does not convert makes its message a reject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.debezium import DebeziumSettings
from headwater.sources.debezium.change_batch import ChangeBatch
from headwater.sources.debezium.closer import StructRows
from headwater.sources.debezium.envelope import Group
from headwater.sources.debezium.keys import KeyRows
from headwater.sources.debezium.kinds import Exact, Kind, same, struct_of
from headwater.sources.debezium.layout import Layout
from headwater.sources.debezium.not_rows import OPS, Nothing, why_none
from headwater.sources.debezium.positions import SOURCE, TRANSACTION, known_connectors
from headwater.sources.debezium.transport import Messages
from headwater.sources.debezium.unavailable import Unavailable
from headwater.sources.json.values import JsonValues

Reject = Callable[[int, str], None]
Rows = tuple[pa.RecordBatch, np.ndarray]

_OPS = pa.array(OPS)


class ShapeRows:
    """For one shape of messages and one set of columns."""

    def __init__(self, layout: Layout, columns: pa.Schema, key: tuple[str, ...], settings: DebeziumSettings) -> None:
        self._layout, self._columns, self._key = layout, columns, key
        self._unavailable = Unavailable(settings.unavailable)
        self._keys = KeyRows(key, dict(zip(columns.names, columns.types, strict=True)), settings)
        kinds = self._envelope()
        schema = pa.schema([pa.field(name, kind.wire) for name, kind in kinds.items()])
        self._values = JsonValues(schema, StructRows(kinds))

    def _envelope(self) -> dict[str, Kind]:
        """What is read of an event. Of `before` only the key is trusted, and all of it where a table has no key."""
        held = self._layout.columns
        old = {held[name] for name in (self._key or held) if name in held}
        rows = {
            "before": {name: kind for name, kind in self._layout.kinds.items() if name in old},
            "after": self._layout.kinds,
        }
        made = {name: struct_of(kinds) for name, kinds in rows.items() if kinds}
        return {**made, "source": _SOURCE, "transaction": _TRANSACTION, "op": same(pa.string())}

    @property
    def slow(self) -> bool:
        """Whether most events needed the closer look."""
        return self._values.slow

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
        for place, reason in parsed.rejected:
            _tell(group, place, reason, reject)
        places = np.delete(np.arange(len(group.indices)), [place for place, _ in parsed.rejected])
        indices = np.array(group.indices, np.int64)
        changes = pc.is_in(events.column("op"), value_set=_OPS)
        if changes.false_count:
            found = changes.to_numpy(zero_copy_only=False)
            for place in places[~found].tolist():
                _tell(group, place, "", reject)
            events, places = events.filter(changes), places[found]
        return events, indices[places]


def _tell(group: Group, place: int, reason: str, reject: Reject) -> None:
    try:
        reject(group.indices[place], why_none(group.payloads[place], reason))
    except Nothing:
        return


def _source_exact() -> Exact:
    """The source of a connector that we do not know may have other types: its name is all that matters then."""
    strict = struct_of({field.name: same(field.type) for field in SOURCE}).exact

    def exact(value: Any) -> Any:
        named = dict(value).get("connector") if isinstance(value, list) and type(value) is not list else None
        return strict(value) if named in known_connectors() or not isinstance(named, str) else {"connector": named}

    return exact


_SOURCE = Kind(SOURCE, SOURCE, _source_exact())
_TRANSACTION = struct_of({field.name: same(field.type) for field in TRANSACTION})
