"""Messages become rows: the value's columns, beside them what Kafka knows of the message, and rejects (G8)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from headwater.model.errors import InputError, ValueNotKept
from headwater.model.rows import OnReject, Reject
from headwater.sources.json.columns import Columns, SeenTypes, check_names, infer_values, with_new
from headwater.sources.json.decoder import JsonDecoder
from headwater.sources.kafka.client import OffsetRange, Reading, messages
from headwater.sources.values import BINARY, TEXT, BinaryValues, ParsedValues, TextValues, ValueParser

if TYPE_CHECKING:
    from headwater.sources.kafka.avro import AvroSettings

_HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())]))
)


class Message(Protocol):
    """What is needed of a message; librdkafka's own are such, and those that a replay makes of rejects."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Sequence[tuple[str, bytes | None]] | None: ...


class Batches(Protocol):
    """Makes the batches of one split."""

    def batch(self, messages: Sequence[Message], on_reject: OnReject) -> pa.RecordBatch | None: ...


class DecoderFactory(Protocol):
    """How the messages of one topic become rows; sent to the executors."""

    @property
    def stream(self) -> str: ...

    @property
    def schema(self) -> pa.Schema: ...

    def decoder(self) -> Batches: ...


@dataclass(frozen=True)
class MessageFormat:
    """How messages become rows where one message is one row."""

    stream: str
    format: str
    values: pa.Schema  # of the columns in the value
    metadata: tuple[tuple[str, str], ...]  # what Kafka knows of a message → the column's name
    key_as: str
    tombstones: str
    avro: AvroSettings | None = None

    @property
    def schema(self) -> pa.Schema:
        """The value's columns, then the metadata's."""
        return pa.schema([*self.values, *metadata_fields(self.metadata, self.key_as)])

    def decoder(self) -> Decoder:
        return Decoder(self)

    def open_values(self) -> ValueParser:
        if self.format == "json":
            return JsonDecoder(self.values)
        if self.avro is not None:
            return self.avro.open()
        return TextValues() if self.format == "text" else BinaryValues()


def plain_schema(kind: str) -> pa.Schema:
    """The columns of a format whose value stays one."""
    return TEXT if kind == "text" else BINARY


def metadata_fields(metadata: Sequence[tuple[str, str]], key_as: str) -> list[pa.Field]:
    """The columns of what Kafka knows of a message."""
    types = {
        "topic": (pa.string(), False),
        "partition": (pa.int32(), False),
        "offset": (pa.int64(), False),
        "timestamp": (pa.timestamp("us", "UTC"), True),
        "key": (pa.string() if key_as == "text" else pa.binary(), True),
        "headers": (_HEADERS, False),
    }
    return [pa.field(column, *types[name]) for name, column in metadata]


def metadata_columns(metadata: Sequence[tuple[str, str]], messages: Sequence[Message]) -> list[pa.Array]:
    """Their values, before they are cast."""
    return [_COLUMNS[name](messages) for name, _ in metadata]


class Decoder:
    """Makes the batches of one split."""

    def __init__(self, decoding: MessageFormat) -> None:
        self._decoding, self._schema = decoding, decoding.schema
        self._values = decoding.open_values()
        self._text_key = decoding.key_as == "text" and any(name == "key" for name, _ in decoding.metadata)

    def batch(self, messages: Sequence[Message], on_reject: OnReject) -> pa.RecordBatch | None:
        """The rows of the messages; those that have none are handed to `on_reject`."""
        messages = with_readable_keys(self._decoding.stream, messages, on_reject) if self._text_key else messages
        values = [message.value() for message in messages]
        if self._decoding.tombstones != "row" and None in values:
            if self._decoding.tombstones == "reject":
                self._reject([message for message in messages if message.value() is None], "no value", on_reject)
            messages = [message for message in messages if message.value() is not None]
            values = [value for value in values if value is not None]
        if not values:
            return None
        parsed = self._values.parse(values)
        for index, reason in parsed.rejected:
            on_reject(message_reject(self._decoding.stream, messages[index], reason))
        if parsed.rejected:
            without = {index for index, _ in parsed.rejected}
            messages = [message for index, message in enumerate(messages) if index not in without]
        return self._assembled(parsed, messages)

    def _assembled(self, parsed: ParsedValues, messages: Sequence[Message]) -> pa.RecordBatch | None:
        rows = sum(batch.num_rows for batch in parsed.batches)
        if rows != len(messages):
            # A row beside another message's offset would be a silent lie; no input is known that leads here.
            raise ValueNotKept(f"{self._decoding.stream}: {len(messages):,} messages gave {rows:,} rows")
        if not rows:
            return None
        batches = parsed.batches
        columns = [_joined([batch.column(n) for batch in batches]) for n in range(len(self._decoding.values))]
        columns += metadata_columns(self._decoding.metadata, messages)
        typed = [column.cast(field.type) for column, field in zip(columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)

    def _reject(self, messages: Sequence[Message], reason: str, on_reject: OnReject) -> None:
        for message in messages:
            on_reject(message_reject(self._decoding.stream, message, reason))


def with_readable_keys(stream: str, messages: Sequence[Message], on_reject: OnReject) -> Sequence[Message]:
    """Those whose key is a text; the others are rejects."""
    bad = [message for message in messages if not _is_text(message.key())]
    for message in bad:
        on_reject(message_reject(stream, message, "key: not UTF-8; write key_as: binary"))
    return [message for message in messages if _is_text(message.key())] if bad else messages


def refuse(reject: Reject) -> None:
    """Raise the reject: the reader was given no collector."""
    location = ", ".join(f"{name} {value}" for name, value in reject.location.items())
    raise ValueNotKept(f"{location}: {reject.reason}", hint="reject such messages (max_rejects), or change the schema")


def message_reject(stream: str, message: Message, reason: str) -> Reject:
    """Everything of the message, so that it can be tried again."""
    value, key, (kind, moment) = message.value(), message.key(), message.timestamp()
    more: dict[str, Any] = {
        "key": _base64(key),
        "headers": [[name, _base64(value)] for name, value in message.headers() or []],
        "timestamp": moment if kind else None,
    }
    if value is None:
        more["tombstone"] = True
    location: dict[str, str | int] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }
    return Reject(stream, location, reason, value or b"", more)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _is_text(key: bytes | None) -> bool:
    if key is None or key.isascii():
        return True
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _joined(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def _offsets(messages: Sequence[Message]) -> pa.Array:
    first, last = messages[0].offset(), messages[-1].offset()
    if last - first == len(messages) - 1:  # within a split offsets only grow: none is missing
        return pa.array(np.arange(first, last + 1, dtype=np.int64))
    return pa.array([message.offset() for message in messages], pa.int64())


def _timestamps(messages: Sequence[Message]) -> pa.Array:
    moments = [moment if kind else None for kind, moment in (message.timestamp() for message in messages)]
    return pa.array(moments, pa.timestamp("ms", "UTC"))


def _headers(messages: Sequence[Message]) -> pa.Array:
    headers = [
        [{"name": name, "value": value} for name, value in message.headers() or ()]  # a name may stand twice
        for message in messages
    ]
    return pa.array(headers, _HEADERS)


_COLUMNS: dict[str, Callable[[Sequence[Message]], pa.Array]] = {
    "topic": lambda messages: pa.array([message.topic() for message in messages], pa.string()),
    "partition": lambda messages: pa.array([message.partition() for message in messages], pa.int32()),
    "offset": _offsets,
    "timestamp": _timestamps,
    "key": lambda messages: pa.array([message.key() for message in messages], pa.binary()),
    "headers": _headers,
}


def columns_after(
    known: Mapping[str, Columns], ranges: Iterable[OffsetRange], reading: Reading, reserved: set[str]
) -> dict[str, Columns]:
    """The columns of every topic, with what the messages of the ranges bring."""
    columns = dict(known)
    for topic, group in groupby(ranges, key=lambda each: each.topic):
        seen_types: SeenTypes = {}
        for wanted in group:
            for batch in messages(reading, wanted):
                infer_values((message.value() for message in batch), seen_types)
        columns[topic] = with_new(known.get(topic, {}), seen_types)
        if not columns[topic]:
            raise InputError(f"{topic}: no message of the window is a JSON object with a field", hint="write schema: …")
        check_names(topic, columns[topic], reserved)
    return columns
