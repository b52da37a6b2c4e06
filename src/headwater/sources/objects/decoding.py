"""How the objects of one source become rows: a value that goes to the executors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.objects_source import CsvSettings, ObjectMetadata, ObjectsSource
from headwater.sources import ddl_schema
from headwater.sources.json.found import ddl_of

if TYPE_CHECKING:
    from headwater.sources.debezium.events import EventReading

METADATA_TYPES: Mapping[ObjectMetadata, pa.DataType] = {
    "url": pa.string(),
    "etag": pa.string(),
    "modified": pa.timestamp("us", "UTC"),
    "row": pa.int64(),
}
_PLAIN = {"text": pa.string(), "binary": pa.binary()}

Columns = Mapping[str, tuple[int, str]]  # name → when it was found, type


@dataclass(frozen=True)
class Reading:
    """Everything of the settings that a task needs."""

    stream: str
    format: str
    content: pa.Schema  # the columns that the objects' content gives
    metadata: tuple[tuple[ObjectMetadata, str], ...]  # what is shown of an object → the column's name
    declared: bool = True  # somebody wrote these columns; else they were found
    json_as: str = "auto"
    csv: CsvSettings = field(default_factory=CsvSettings)
    compression: str = "auto"
    tries: int = 1  # how often an object is tried before it is set aside
    split_bytes: int = 256_000_000
    events: EventReading | None = None  # for debezium

    @property
    def schema(self) -> pa.Schema:
        """The content's columns, then the metadata's."""
        about = [pa.field(column, METADATA_TYPES[name], nullable=False) for name, column in self.metadata]
        return pa.schema([*self.content, *about])


def reading_of(settings: ObjectsSource, columns: Columns, stream: str) -> Reading:
    """By the settings, and by the columns that were found where the settings name none."""
    events = _events(settings, columns, stream) if settings.format == "debezium" else None
    return Reading(
        stream=stream,
        format=settings.format,
        content=events.schema if events else _content(settings, columns),
        metadata=tuple(settings.metadata_columns.items()),
        declared=settings.schema is not None,
        json_as=settings.json_as,
        csv=settings.csv,
        compression=settings.compression,
        tries=settings.tries,
        split_bytes=settings.split_bytes,
        events=events,
    )


def _events(settings: ObjectsSource, columns: Columns, stream: str) -> EventReading:
    from headwater.sources.debezium.objects import reading_of as events_of  # noqa: PLC0415 - other formats need none of it

    return events_of(settings, columns, stream)


def schema_of(settings: ObjectsSource, columns: Columns) -> pa.Schema:
    """Of the rows: content columns, then metadata columns."""
    return reading_of(settings, columns, "").schema


def _content(settings: ObjectsSource, columns: Columns) -> pa.Schema:
    if settings.format in _PLAIN:
        return pa.schema([pa.field("value", _PLAIN[settings.format])])
    if settings.schema is not None:
        return ddl_schema.schema_of(settings.schema)
    return ddl_schema.schema_of(ddl_of(columns)) if columns else pa.schema([])
