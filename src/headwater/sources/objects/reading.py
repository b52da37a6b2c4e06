"""The rows of a window of objects, and of rejects that are tried again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.objects_source import ObjectsSource
from headwater.model.changes import POSITION
from headwater.model.marks import ObjectsMark
from headwater.model.rows import Rows, Split
from headwater.sources.objects.container import Container
from headwater.sources.objects.cutting import cut
from headwater.sources.objects.decoding import Reading, reading_of
from headwater.sources.split_rows import ArrowChangeRows, ArrowRows

if TYPE_CHECKING:
    from headwater.sources.debezium.events import EventReading


def window_rows(
    pages: Sequence[pa.Table],
    settings: ObjectsSource,
    container: Container,
    span: tuple[ObjectsMark, ObjectsMark],
    *,
    stream: str,
    cores: int,
) -> Rows:
    """What the bookmarks of a window stand for; `span` is its start and its end."""
    start, end = span
    reading = reading_of(settings, end.columns, stream)
    read = [page.filter(pc.equal(page["state"], "read")) for page in pages]
    if reading.events is not None:
        splits = cut(iter(read), settings, container, reading, cores)
        return change_rows(reading, reading.events, splits, settings.metadata_columns.get("url", ""))
    return ArrowRows(
        stream=stream,
        schema=reading.schema,
        key=(),
        order=(),
        splits=cut(iter(read), settings, container, reading, cores),
        part_column=settings.metadata_columns.get("url", ""),
        earlier=tuple(container.url(key) for page in pages for key in _earlier(page, start, settings)),
        part_prefix=container.url(""),
    )


def change_rows(reading: Reading, events: EventReading, splits: tuple[Split, ...], part_column: str) -> Rows:
    """Changes stay what they are when the object that brought them is changed or gone: nothing is replaced."""
    named: dict[str, str] = dict(reading.metadata)
    return ArrowChangeRows(
        reading.stream,
        reading.schema,
        events.key,
        (POSITION,),
        splits,
        part_column,
        table_columns=tuple(events.columns.names),
        event_key=(named["url"], named["row"]) if named.keys() >= {"url", "row"} else (),
        arrival=named.get("modified", ""),
    )


def _earlier(page: pa.Table, start: ObjectsMark, settings: ObjectsSource) -> list[str]:
    """Objects whose rows may be in the sinks already: of an earlier version, or of this one, before a rewind."""
    again = pc.and_(pc.equal(page["state"], "read"), pc.less_equal(page["generation"], start.reached))
    found = pc.or_(page["earlier"], again)
    if settings.deleted == "ignore":
        found = pc.and_(found, pc.equal(page["state"], "read"))
    return list(page["key"].filter(found).to_pylist())
