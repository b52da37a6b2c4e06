"""The rows of a window, and of rejects that are tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.kafka_client import ClientOptions
from headwater.config.kafka_source import KafkaSource
from headwater.model.errors import InputError
from headwater.model.marks import OffsetsMark
from headwater.model.rejects import Reject
from headwater.model.rows import Rows, Split
from headwater.model.window import Window
from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.found import Columns, ddl_of
from headwater.sources.kafka.consuming import OffsetRange, Reading
from headwater.sources.kafka.decoding import Decoding, plain_schema
from headwater.sources.kafka.registry import Registry
from headwater.sources.kafka.splits import KafkaSplit, ReplaySplit, cut
from headwater.sources.split_rows import ArrowRows

if TYPE_CHECKING:
    from headwater.sources.kafka.avro_values import AvroReading


def window_rows(
    settings: KafkaSource, folder: Path, cores: int, options: ClientOptions, window: Window
) -> Sequence[Rows]:
    """One Rows per topic that has something in the window. The window alone says what (G5)."""
    reading = reading_of(settings, options)
    columns = window.end.columns if isinstance(window.end, OffsetsMark) else {}
    found: list[Rows] = []
    for topic, group in groupby(ranges(window), key=lambda each: each.topic):
        wanted = list(group)
        if settings.format == "debezium" and settings.reader != "spark":
            found += _events(settings, topic, columns, reading, cut(wanted, cores, settings.splits))
            continue
        decoding = decoding_of(settings, folder, topic, columns.get(topic))
        if settings.reader == "spark":
            found.append(_spark_rows(settings, folder, decoding, wanted))
            continue
        parts = cut(wanted, cores, settings.splits)
        found.append(_rows(decoding, tuple(KafkaSplit(part, decoding, reading) for part in parts)))
    return found


def reading_of(settings: KafkaSource, options: ClientOptions) -> Reading:
    return Reading(options, settings.isolation, settings.timeout.total_seconds())


def replay_rows(
    settings: KafkaSource,
    folder: Path,
    rejects: Sequence[Reject],
    columns: Mapping[str, Columns],
) -> Sequence[Rows]:
    """One Rows per topic of the rejects; `columns` were found in the messages of each topic."""
    ordered = sorted(rejects, key=lambda reject: reject.stream)
    found: list[Rows] = []
    for topic, group in groupby(ordered, key=lambda reject: reject.stream):
        if settings.format == "debezium":
            found += _events_again(settings, topic, columns, tuple(group))
            continue
        decoding = decoding_of(settings, folder, topic, columns.get(topic))
        found.append(_rows(decoding, (ReplaySplit(tuple(group), decoding),)))
    return found


def _events(
    settings: KafkaSource, topic: str, columns: Mapping[str, Columns], reading: Reading, parts: Sequence[OffsetRange]
) -> list[Rows]:
    """None where no message of the topic has been a change yet; but what should have been one is told."""
    from headwater.sources.debezium.kafka import decoding_of as events_of  # noqa: PLC0415 - other formats need none of it

    decoding = events_of(settings, topic, columns)
    return [decoding.rows(tuple(KafkaSplit(part, decoding, reading) for part in parts))] if decoding else []


def _events_again(
    settings: KafkaSource, topic: str, columns: Mapping[str, Columns], rejects: tuple[Reject, ...]
) -> list[Rows]:
    from headwater.sources.debezium.kafka import decoding_of as events_of  # noqa: PLC0415 - as above

    decoding = events_of(settings, topic, columns)
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


def decoding_of(
    settings: KafkaSource, folder: Path, topic: str, columns: Mapping[str, tuple[int, str]] | None = None
) -> Decoding:
    """How the messages of a topic become rows: by the settings, or by the columns that were found in them."""
    avro = _avro(settings, folder) if settings.format == "avro" else None
    return Decoding(
        stream=topic,
        format=settings.format,
        values=avro.columns if avro else _values(settings, columns),
        metadata=tuple(settings.metadata_columns.items()),
        key_as=settings.key_as,
        tombstones=settings.tombstones,
        avro=avro,
    )


def _avro(settings: KafkaSource, folder: Path) -> AvroReading:
    from headwater.sources.avro.types import columns_of  # noqa: PLC0415 - other formats need no Avro
    from headwater.sources.kafka.avro_values import AvroReading  # noqa: PLC0415

    file = folder / (settings.avro_schema or "")
    try:
        text = file.read_text()
    except OSError as error:
        raise InputError(f"avro_schema: {file}: {error.strerror}", hint="write the path of an .avsc file") from None
    given = settings.registry
    registry = Registry(given.url, given.username, given.password) if given else None
    return AvroReading(text, columns_of(text, str(file)), settings.avro_header, registry)


def _values(settings: KafkaSource, columns: Mapping[str, tuple[int, str]] | None) -> pa.Schema:
    if settings.format in ("text", "binary"):
        return plain_schema(settings.format)
    if settings.schema is not None:
        return schema_of(settings.schema)
    if columns is None:
        raise InputError(
            "kafka: messages cannot be tried again without a schema", hint="write schema: id bigint, name string, …"
        )
    return schema_of(ddl_of(columns))


def _spark_rows(settings: KafkaSource, folder: Path, decoding: Decoding, wanted: list[OffsetRange]) -> Rows:
    from headwater.sources.kafka.spark_reader import SparkKafkaRows, spark_options  # noqa: PLC0415 - not the default

    if settings.format in ("avro", "debezium") or (settings.format == "json" and settings.schema is None):
        raise InputError("reader: spark reads json with a schema, text and binary", hint="write reader: arrow")
    if settings.tombstones == "reject":
        raise InputError("reader: spark knows no rejects", hint="write tombstones: row, or reader: arrow")
    options = spark_options(settings, folder, settings.splits)
    return SparkKafkaRows(decoding, *_key_and_order(decoding), tuple(wanted), settings.schema, options)


def _rows(decoding: Decoding, splits: tuple[Split, ...]) -> ArrowRows:
    return ArrowRows(decoding.stream, decoding.schema, *_key_and_order(decoding), splits)


def _key_and_order(decoding: Decoding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Within a topic partition and offset name a message; of two with one key the later has the higher offset."""
    named = dict(decoding.metadata)
    key = (named["partition"], named["offset"]) if {"partition", "offset"} <= named.keys() else ()
    return key, (named["offset"],) if "offset" in named else ()
