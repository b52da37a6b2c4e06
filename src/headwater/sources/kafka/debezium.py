"""Debezium's events in Kafka's topics, each of which is a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.config.sources.kafka import KafkaSourceSettings
from headwater.model.position.stream_state import StreamState, positions
from headwater.model.rows import POSITION, Changes, OnReject, Rows, Split
from headwater.sources.ddl_schema import schema_of
from headwater.sources.debezium.decoder import EventDecoder, EventFormat
from headwater.sources.debezium.envelope import OLD_KEY_HEADER, Messages
from headwater.sources.debezium.inference import ColumnInference
from headwater.sources.json.columns import ddl_of
from headwater.sources.kafka.client import OffsetRange, Reading, messages
from headwater.sources.kafka.decoder import (
    Message,
    message_reject,
    metadata_columns,
    metadata_fields,
    with_readable_keys,
)


@dataclass(frozen=True)
class EventMessageFormat:
    """How the messages of one topic become change rows; sent to the executors."""

    reading: EventFormat
    metadata: tuple[tuple[str, str], ...]
    key_as: str

    @property
    def stream(self) -> str:
        return self.reading.stream

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.reading.schema, *metadata_fields(self.metadata, self.key_as)])

    def decoder(self) -> EventMessages:
        return EventMessages(self)

    def rows(self, splits: tuple[Split, ...]) -> Rows:
        named = dict(self.metadata)
        event_key = (named["partition"], named["offset"]) if {"partition", "offset"} <= named.keys() else ()
        changes = Changes(tuple(self.reading.columns.names), event_key, named.get("timestamp", ""))
        return Rows(self.stream, self.schema, self.reading.key, (POSITION,), splits, changes=changes)


class EventMessages:
    """Makes the batches of one split."""

    def __init__(self, decoding: EventMessageFormat) -> None:
        self._decoding, self._schema = decoding, decoding.schema
        self._rows = EventDecoder(decoding.reading)
        self._text_key = decoding.key_as == "text" and any(name == "key" for name, _ in decoding.metadata)

    def batch(self, messages: Sequence[Message], on_reject: OnReject) -> pa.RecordBatch | None:
        """The rows of the messages that are changes; those that should be and are not are handed to `on_reject`."""
        stream = self._decoding.stream
        messages = with_readable_keys(stream, messages, on_reject) if self._text_key else messages
        decoded = self._rows.decode(
            Messages([one.value() for one in messages], lambda n: messages[n].key(), lambda n: _old_key(messages[n]))
        )
        for index, reason in decoded.rejected:
            on_reject(message_reject(stream, messages[index], reason))
        if not decoded.rows.num_rows:
            return None
        complete = len(decoded.message_indices) == len(messages)
        rows = messages if complete else [messages[index] for index in np.asarray(decoded.message_indices).tolist()]
        columns = [*decoded.rows.columns, *metadata_columns(self._decoding.metadata, rows)]
        typed = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)


def _old_key(message: Message) -> bytes | None:
    return next((value for name, value in message.headers() or () if name == OLD_KEY_HEADER), None)


def state_after(
    topic: str, known: StreamState, ranges: Iterable[OffsetRange], reading: Reading, settings: KafkaSourceSettings
) -> StreamState:
    """The columns and the key of a topic, with what the messages of the ranges bring."""
    inference = ColumnInference(topic, settings.debezium, settings.schema)
    for wanted in ranges if not inference.complete else ():
        for batch in messages(reading, wanted):
            inference.see([one.value() for one in batch], [one.key() for one in batch])
    columns = inference.columns(known.columns, set(settings.metadata_columns.values()))
    key = inference.key(known.key, columns)
    return StreamState(columns=columns or known.columns, key_positions=positions(key) if key else known.key_positions)


def decoding_of(settings: KafkaSourceSettings, topic: str, known: StreamState) -> EventMessageFormat | None:
    """None where nothing in the topic has been a change yet."""
    if settings.schema is None and not known.columns:
        return None
    table = schema_of(settings.schema or ddl_of(known.columns))
    # A truncation has no key, so that its columns can be NULL.
    nullable = pa.schema([field.with_nullable(True) for field in table])  # noqa: FBT003 - Arrow's own signature
    reading = EventFormat(topic, nullable, known.key, settings.schema is not None, settings.debezium)
    return EventMessageFormat(reading, tuple(settings.metadata_columns.items()), settings.key_as)
