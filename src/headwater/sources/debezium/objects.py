"""Debezium's events in objects of a store, of one table each stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headwater.config.objects_source import ObjectsSource
from headwater.model.errors import InputError
from headwater.sources.ddl_schema import schema_of
from headwater.sources.debezium.events import EventDecoder, EventReading
from headwater.sources.debezium.found import Look
from headwater.sources.debezium.lines import Line, line_of
from headwater.sources.debezium.transport import Messages
from headwater.sources.json.found import Columns, ddl_of
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.decoded import Decoded, Part
from headwater.sources.objects.formats.json_elements import elements, is_lines
from headwater.sources.objects.formats.lines import chunks, in_chunks, unmarked

_KEY = " key "  # before the names of the key's columns, beside the columns themselves


class EventObjects:
    """Decodes objects of one stream; `as_`: auto, lines or document."""

    def __init__(self, reading: EventReading, as_: str) -> None:
        self._rows, self._as = EventDecoder(reading), as_

    def decode(self, contents: Sequence[Content]) -> Decoded:
        made = Decoded()
        lines: list[bytes] = []
        places: list[tuple[int, int]] = []
        for owner, content in enumerate(contents):
            try:
                found = elements(unmarked(content[:]), self._as)
            except ObjectFailed as failed:
                made.failed[owner] = failed
                continue
            lines += [line for _, line in found]
            places += [(owner, number) for number, _ in found]
        return self._decoded(lines, places, made)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if self._as == "document" or (self._as == "auto" and not is_lines(content)):
            made = self.decode([content])
            if made.failed:
                raise made.failed[0]
            yield made
            return
        yield from in_chunks(content, self.lines)

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the midst of an object."""
        found = elements(chunk, "lines")
        return self._decoded([line for _, line in found], [(0, number) for number, _ in found], Decoded())

    def element(self, value: bytes) -> Decoded:
        """One line by itself."""
        return self._decoded([value], [(0, 1)], Decoded())

    def _decoded(self, lines: list[bytes], places: list[tuple[int, int]], made: Decoded) -> Decoded:
        if not lines:
            return made
        found = self._rows.decode(messages_of([line_of(line) for line in lines]))
        made.bad += [BadRow(*places[index], reason, lines[index]) for index, reason in found.rejected]
        if found.rows.num_rows:
            made.parts.append(Part.of_rows(found.rows, *np.array(places, np.int64)[found.kept].T))
        return made


def messages_of(lines: Sequence[Line]) -> Messages:
    return Messages([line.value for line in lines], lambda n: lines[n].key, lambda n: lines[n].old_key)


def columns_after(known: Columns, contents: Iterable[Content], settings: ObjectsSource, where: str) -> Columns:
    """The known columns and the key, and what the objects bring. What cannot be read brings none, and fails later."""
    look = Look(where, settings.debezium, settings.schema)
    for content in contents if not look.complete else ():
        for chunk in chunks(content) if is_lines(content) else [content[:]]:
            try:
                found = messages_of([line_of(line) for _, line in elements(unmarked(chunk), settings.json_as)])
            except ObjectFailed:
                continue
            look.see(found.values, [found.key(n) for n in range(len(found.values))])
    tables = look.seen()
    if len(tables) > 1:
        raise InputError(
            f"{where}: events of several tables: {', '.join(sorted(tables))}",
            hint="a stream is one table: write a url or a pattern for each, in a pipeline of its own",
        )
    columns, key = parted(known)
    columns = look.columns(columns, set(settings.metadata_columns.values()))
    names = look.key(key, columns)
    return {**columns, **{_KEY + name: (number, "key") for number, name in enumerate(names)}}


def reading_of(settings: ObjectsSource, found: Columns, stream: str) -> EventReading:
    """By the settings, and by what was found."""
    columns, key = parted(found)
    table = schema_of(settings.schema or ddl_of(columns)) if settings.schema or columns else pa.schema([])
    nullable = pa.schema([field.with_nullable(True) for field in table])  # noqa: FBT003 - Arrow's own signature
    return EventReading(stream, nullable, key, settings.schema is not None, settings.debezium)


def parted(found: Columns) -> tuple[Columns, tuple[str, ...]]:
    """Columns, and the key's names."""
    key = sorted((number, name.removeprefix(_KEY)) for name, (number, _) in found.items() if name.startswith(_KEY))
    return {name: kind for name, kind in found.items() if not name.startswith(_KEY)}, tuple(name for _, name in key)
