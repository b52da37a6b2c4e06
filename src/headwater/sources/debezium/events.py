"""Events become change rows: the table's columns, what happened to the row and when, and rejects (G8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headwater.config.debezium import DebeziumSettings
from headwater.model.changes import change_fields
from headwater.sources.debezium.envelope import Envelopes, Group, Shape
from headwater.sources.debezium.layout import layout_of
from headwater.sources.debezium.lists import LearningRows
from headwater.sources.debezium.not_rows import Nothing, is_envelope, why_no_event
from headwater.sources.debezium.shape_rows import ShapeRows
from headwater.sources.debezium.transport import Messages


@dataclass(frozen=True)
class EventReading:
    """How the events of one stream become rows; sent to the executors."""

    stream: str
    columns: pa.Schema  # the table's
    key: tuple[str, ...]
    declared: bool = False  # somebody wrote the columns: fields beside them are left out
    settings: DebeziumSettings = field(default_factory=DebeziumSettings)

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, before what the transport knows."""
        return pa.schema([*self.columns, *change_fields()])


@dataclass
class Decoded:
    """The rows of some messages; those that brought none and should have."""

    rows: pa.RecordBatch
    kept: np.ndarray  # the index of each row's message
    rejected: list[tuple[int, str]]  # index of a message, reason


class EventDecoder:
    """Decodes the events of one stream, from one thread."""

    def __init__(self, reading: EventReading) -> None:
        self._reading, self._schema = reading, reading.schema
        self._envelopes = Envelopes()
        # Rows; or why there are none; None: there need not be any.
        self._shapes: dict[Shape, ShapeRows | LearningRows | str | None] = {}

    def decode(self, messages: Messages) -> Decoded:
        """A row per event, in the order of the messages."""
        rejected: list[tuple[int, str]] = []
        parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
        for shape, group in self._envelopes.grouped(messages.values).items():
            parts += self._group(shape, group, messages, lambda index, why: rejected.append((index, why)))
        rows, kept = self._joined(parts)
        return Decoded(rows, kept, sorted(rejected))

    def _group(
        self, shape: Shape, group: Group, messages: Messages, reject: Callable[[int, str], None]
    ) -> list[tuple[pa.RecordBatch, np.ndarray]]:
        if shape not in self._shapes:
            self._shapes[shape] = self._opened(shape)
        known = self._shapes[shape]
        if isinstance(known, LearningRows):
            return known.rows(group, messages, reject)
        if isinstance(known, ShapeRows):
            return [known.rows(group, messages, reject)]
        if known is not None:
            for index in group.indices:
                reject(index, known)
        return []

    def _opened(self, shape: Shape) -> ShapeRows | LearningRows | str | None:
        known = self._reading
        layout = layout_of(shape, known.columns, known.settings, declared=known.declared)
        if shape.schema is None and not known.declared:
            return LearningRows(
                lambda kinds: ShapeRows(layout.with_kinds(kinds), known.columns, known.key, known.settings)
            )
        if shape.schema is None or is_envelope(shape.fields()):
            return ShapeRows(layout, known.columns, known.key, known.settings)
        try:
            return why_no_event(shape.fields())
        except Nothing:
            return None

    def _joined(self, parts: Sequence[tuple[pa.RecordBatch, np.ndarray]]) -> tuple[pa.RecordBatch, np.ndarray]:
        if not parts:
            return pa.RecordBatch.from_pylist([], self._schema), np.zeros(0, np.int64)
        if len(parts) == 1:
            return parts[0]
        kept = np.concatenate([indices for _, indices in parts])
        order = np.argsort(kept)
        return pa.concat_batches([rows for rows, _ in parts]).take(pa.array(order)), kept[order]
