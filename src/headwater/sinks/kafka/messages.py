"""Rows → messages: keys, values and positions of a batch. The same in this process and in tasks, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.model.errors import UnknownName, ValueNotKept
from headwater.model.rows import Rows
from headwater.sinks.kafka.json_values import json_objects, json_texts
from headwater.sinks.kafka.positions import PositionScheme

# One Arrow array of text ends at 2 GiB, and the Python values of a chunk are all in memory at once.
_CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 20_000


class Values(Protocol):
    """Turns rows into the values of messages; picklable."""

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]: ...


@dataclass(frozen=True)
class JsonValues:
    """A JSON object per row."""

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]:
        return list(json_objects(batch).to_pylist())


@dataclass(frozen=True)
class Chunk:
    """Some messages, ready to be sent."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    positions: Sequence[str] | None  # None: without headers

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class MessageMaker:
    """How one landing's rows become messages; sent to the tasks."""

    topic: str
    values: Values
    key: tuple[str, ...]
    positions: PositionScheme | None
    largest: int  # bytes of key and value that the topic takes

    def chunks(self, batches: Iterable[pa.RecordBatch], part: int | None) -> Iterator[Chunk]:
        """The messages of one task, or of a window that one process sends alone. Raises for a row that is too large."""
        positions = self.positions.positions_of(part) if self.positions else None
        before = 0
        for batch in batches:
            for rows in _sliced(batch):
                values, keys = self.values(rows), keys_of(rows, self.key)
                chunk = Chunk(values, keys, positions(values) if positions else None)
                self._check_sizes(chunk, before, part)
                before += len(chunk)
                yield chunk

    def _check_sizes(self, chunk: Chunk, before: int, part: int | None) -> None:
        for number, (value, key) in enumerate(zip(chunk.values, chunk.keys, strict=True)):
            size = len(value) + len(key or b"")
            if size > self.largest:
                position = chunk.positions[number] if chunk.positions else None
                at = _place(before + number, part, position)
                raise ValueNotKept(
                    f"topic {self.topic}: {at} makes a message of {size:,} bytes, and the topic takes {self.largest:,}",
                    hint="raise the topic's max.message.bytes, or leave large columns or rows out "
                    "(columns: or where: of the source, or a transform)",
                )


def key_columns(wanted: tuple[str, ...] | None, rows: Rows) -> tuple[str, ...]:
    """The settings' columns, or the source's primary key."""
    key = rows.key if wanted is None else wanted
    missing = [name for name in key if name not in rows.schema.names]
    if missing:
        raise UnknownName(
            f"{rows.stream} has no column {missing[0]!r} for the message's key",
            hint=f"choose key: from {', '.join(rows.schema.names)}; or key: [] for messages without one",
        )
    return key


def keys_of(batch: pa.RecordBatch, key: tuple[str, ...]) -> Sequence[bytes | None]:
    """One column: its text, or its bytes as they are; NULL is no key. Several: a JSON object."""
    if not key:
        return [None] * batch.num_rows
    if len(key) > 1:
        return list(json_objects(batch.select(list(key))).to_pylist())
    column = batch.column(batch.schema.get_field_index(key[0]))
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return list(column.to_pylist())
    return list(json_texts(column, key[0]).cast(pa.binary()).to_pylist())


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    fitting = batch.num_rows * _CHUNK_BYTES // max(1, batch.nbytes)
    step = max(1, min(_CHUNK_ROWS, fitting))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _place(number: int, part: int | None, position: str | None) -> str:
    named = f"row {number}" if part is None else f"row {number} of part {part}"
    return f"{named} (headwater.position {position})" if position else named
