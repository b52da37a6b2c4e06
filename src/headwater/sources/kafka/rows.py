"""The rows of a window, and of rejects that are tried again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.sources.kafka import ClientOptions, KafkaSourceSettings
from headwater.model.errors import InputError
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.position.window import Window
from headwater.model.rows import OnReject, Reject, Rows, Split
from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.columns import ddl_of
from headwater.sources.kafka.avro import Registry
from headwater.sources.kafka.client import OffsetRange, Reading, messages
from headwater.sources.kafka.decoder import DecoderFactory, MessageFormat, plain_schema, refuse

if TYPE_CHECKING:
    from headwater.sources.kafka.avro import AvroSettings


def window_rows(
    settings: KafkaSourceSettings, folder: Path, cores: int, options: ClientOptions, window: Window
) -> Sequence[Rows]:
    """One Rows per topic that has something in the window. The window alone says what (G5)."""
    reading = reading_of(settings, options)
    topic_rows: list[Rows] = []
    for topic, group in groupby(ranges(window), key=lambda each: each.topic):
        parts, known = cut(list(group), cores, settings.splits), window.end.streams.get(topic, StreamState())
        if settings.format == "debezium":
            topic_rows += _events(settings, topic, known, reading, parts)
            continue
        decoding = decoding_of(settings, folder, topic, known)
        topic_rows.append(_rows(decoding, tuple(KafkaSplit(part, decoding, reading) for part in parts)))
    return topic_rows


def reading_of(settings: KafkaSourceSettings, options: ClientOptions) -> Reading:
    return Reading(options, settings.isolation, settings.timeout.total_seconds())


def replay_rows(
    settings: KafkaSourceSettings,
    folder: Path,
    rejects: Sequence[Reject],
    streams: Mapping[str, StreamState],
) -> Sequence[Rows]:
    """One Rows per topic of the rejects; `streams`: what was inferred from the messages of each topic."""
    ordered = sorted(rejects, key=lambda reject: reject.stream)
    topic_rows: list[Rows] = []
    for topic, group in groupby(ordered, key=lambda reject: reject.stream):
        known = streams.get(topic, StreamState())
        if settings.format == "debezium":
            topic_rows += _events_again(settings, topic, known, tuple(group))
            continue
        decoding = decoding_of(settings, folder, topic, known)
        topic_rows.append(_rows(decoding, (ReplaySplit(tuple(group), decoding),)))
    return topic_rows


def _events(
    settings: KafkaSourceSettings,
    topic: str,
    known: StreamState,
    reading: Reading,
    parts: Sequence[OffsetRange],
) -> list[Rows]:
    """None where no message of the topic has been a change yet; a message that should have been one is rejected."""
    from headwater.sources.kafka.debezium import decoding_of as events_of

    decoding = events_of(settings, topic, known)
    return [decoding.rows(tuple(KafkaSplit(part, decoding, reading) for part in parts))] if decoding else []


def _events_again(
    settings: KafkaSourceSettings, topic: str, known: StreamState, rejects: tuple[Reject, ...]
) -> list[Rows]:
    from headwater.sources.kafka.debezium import decoding_of as events_of

    decoding = events_of(settings, topic, known)
    return [decoding.rows((ReplaySplit(rejects, decoding),))] if decoding else []


def ranges(window: Window) -> list[OffsetRange]:
    """Every range of offsets in the window that is not empty, by topic and partition."""
    begin = window.start.topics if isinstance(window.start, OffsetsMark) else {}
    end = window.end.topics if isinstance(window.end, OffsetsMark) else {}
    return [
        OffsetRange(topic, partition, begin.get(topic, {}).get(partition, 0), offset)
        for topic, offsets in sorted(end.items())
        for partition, offset in sorted(offsets.items())
        if begin.get(topic, {}).get(partition, 0) < offset
    ]


def decoding_of(settings: KafkaSourceSettings, folder: Path, topic: str, known: StreamState) -> MessageFormat:
    """How the messages of a topic become rows: by the settings, or by the columns inferred from them."""
    avro = _avro(settings, folder) if settings.format == "avro" else None
    return MessageFormat(
        stream=topic,
        format=settings.format,
        values=avro.columns if avro else _values(settings, known),
        metadata=tuple(settings.metadata_columns.items()),
        key_as=settings.key_as,
        tombstones=settings.tombstones,
        avro=avro,
    )


def _avro(settings: KafkaSourceSettings, folder: Path) -> AvroSettings:
    from headwater.sources.avro import columns_of
    from headwater.sources.kafka.avro import AvroSettings

    file = folder / (settings.avro_schema or "")
    try:
        text = file.read_text()
    except OSError as error:
        raise InputError(f"avro_schema: {file}: {error.strerror}", hint="write the path of an .avsc file") from None
    registry_settings = settings.registry
    registry = (
        Registry(registry_settings.url, registry_settings.username, registry_settings.password)
        if registry_settings
        else None
    )
    return AvroSettings(text, columns_of(text, str(file)), settings.avro_header, registry)


def _values(settings: KafkaSourceSettings, known: StreamState) -> pa.Schema:
    if settings.format in ("text", "binary"):
        return plain_schema(settings.format)
    if settings.schema is not None:
        return schema_of(settings.schema)
    if not known.columns:
        raise InputError(
            "kafka: messages cannot be tried again without a schema", hint="write schema: id bigint, name string, …"
        )
    return schema_of(ddl_of(known.columns))


def _rows(decoding: MessageFormat, splits: tuple[Split, ...]) -> Rows:
    return Rows(decoding.stream, decoding.schema, *_key_and_order(decoding), splits)


def _key_and_order(decoding: MessageFormat) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Within a topic partition and offset name a message; of two with one key the later has the higher offset."""
    named = dict(decoding.metadata)
    key = (named["partition"], named["offset"]) if {"partition", "offset"} <= named.keys() else ()
    return key, (named["offset"],) if "offset" in named else ()


_SMALL = 50_000  # below this many messages another split costs more than it brings
_LARGE = 1_000_000
_PARTS_PER_CORE = 4  # so that the last ones to finish are short


@dataclass(frozen=True)
class KafkaSplit:
    """A range of one partition. Its rows are exactly the range's messages, whenever and however often it is read."""

    range: OffsetRange
    decoding: DecoderFactory = field(repr=False)
    reading: Reading = field(repr=False)

    @property
    def rows(self) -> int:
        return self.range.end - self.range.begin

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        decoder = self.decoding.decoder()
        for chunk in messages(self.reading, self.range):
            batch = decoder.batch(chunk, on_reject or refuse)
            if batch is not None:
                yield batch


@dataclass(frozen=True)
class ReplaySplit:
    """Rejects of one topic, decoded once more from what was kept of them; the topic may have lost them since."""

    rejects: tuple[Reject, ...] = field(repr=False)
    decoding: DecoderFactory = field(repr=False)

    @property
    def rows(self) -> int:
        return len(self.rejects)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        decoder = self.decoding.decoder()
        for reject in self.rejects:
            batch = decoder.batch([_RejectedMessage(reject)], on_reject or refuse)
            if batch is not None:
                yield batch


class _RejectedMessage:
    """A reject as the message that it was."""

    def __init__(self, reject: Reject) -> None:
        self._reject = reject

    def topic(self) -> str:
        return str(self._reject.location["topic"])

    def partition(self) -> int:
        return int(self._reject.location["partition"])

    def offset(self) -> int:
        return int(self._reject.location["offset"])

    def timestamp(self) -> tuple[int, int]:
        moment = self._reject.more.get("timestamp")
        return (0, -1) if moment is None else (1, int(moment))

    def key(self) -> bytes | None:
        return _bytes(self._reject.more.get("key"))

    def value(self) -> bytes | None:
        return None if self._reject.more.get("tombstone") else self._reject.payload

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name, _bytes(value)) for name, value in self._reject.more.get("headers", [])]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def cut(ranges: Sequence[OffsetRange], cores: int, wanted: int | None) -> list[OffsetRange]:
    """The same offsets in parts that cores can share; as many as `wanted`, if that is said."""
    total = sum(each.end - each.begin for each in ranges)
    if wanted is None:
        size = min(max(-(-total // (cores * _PARTS_PER_CORE)), _SMALL), _LARGE)
    else:
        size = max(-(-total // wanted), 1)
    pieces = []
    for each in ranges:
        parts = max(-(-(each.end - each.begin) // size), 1)
        edges = [each.begin + (each.end - each.begin) * n // parts for n in range(parts + 1)]
        pieces += [OffsetRange(each.topic, each.partition, begin, end) for begin, end in pairwise(edges) if begin < end]
    return pieces
