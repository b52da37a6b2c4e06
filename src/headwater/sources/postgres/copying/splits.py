"""A part of a copy that an executor reads: ranges of pages, in the snapshot that all of the copy is read in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.model.errors import ValueNotKept
from headwater.model.rejects import SetAside
from headwater.model.secret import Secret
from headwater.sources.postgres.copying.change_batch import ChangeBatches
from headwater.sources.postgres.copying.pages import HeapRange
from headwater.sources.postgres.copying.reading import HeapReader, Reading
from headwater.sources.postgres.copying.row_places import Numbers, item_of, numbered, values_end
from headwater.sources.postgres.copying.statement import CopiedColumn
from headwater.sources.sql.copy_binary import decode
from headwater.sources.sql.copy_stream import Chunk
from headwater.sources.sql.postgres_exact import exact_part
from headwater.sources.sql.relation import Column
from headwater.sources.sql.types import arrow_schema
from headwater.sources.sql.unkept import Part, RowNames, Unkept, Written, kept_rows

_PLACE = "ctid"  # names a row that has no key
_LOGGED = {"true": "t", "false": "f"}  # a bool as the log has it


@dataclass(frozen=True)
class CopySplit:
    """Some pages of a table. A connection that breaks costs no row and doubles none (`reading.py`)."""

    stream: str
    url: Secret  # prints as ****
    snapshot: str
    ranges: tuple[HeapRange, ...]
    place: int  # of the snapshot in the log
    moment: int
    key: tuple[str, ...]
    columns: tuple[CopiedColumn, ...] = field(repr=False)
    schema: pa.Schema = field(repr=False)
    homes: Mapping[str, str] = field(repr=False)  # column of the table → column of the stream
    where: str = field(repr=False, default="")  # may hold values
    replaces: bool = False  # begins with the truncate of what landed before

    @property
    def rows(self) -> int | None:
        counts = [heap.rows for heap in self.ranges]
        return None if None in counts else sum(count or 0 for count in counts) + self.replaces

    def read(self) -> Iterator[pa.RecordBatch]:
        for part in self.read_parts():
            for unkept in part.unkept:
                raise self._not_kept(unkept)
            yield part.batch

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        return kept_rows(self.read_parts(), self._names(), set_aside)

    def read_parts(self) -> Iterator[Part]:
        batches = ChangeBatches(self.schema, self.homes, self.place, self.moment)
        if self.replaces:
            yield Part(batches.truncate(), (), lambda _: ())
        reader = HeapReader(Reading(self.stream, self.url, self.snapshot, self.columns, self.where))
        columns = [Column(column.name, column.kind, nullable=True) for column in self.columns]
        try:
            for heap in self.ranges:
                for chunk, places in reader.chunks(heap):
                    values = self._values(chunk, columns)
                    change = batches.read(values.batch, numbered(places, heap.number))
                    yield Part(change, values.unkept, _Written(self, values, places))
        finally:
            reader.close()

    def _values(self, chunk: Chunk, columns: list[Column]) -> Part:
        batch, unkept = decode(chunk.data, chunk.starts, values_end(chunk), columns, self.stream)
        return exact_part(batch, columns, arrow_schema(columns), unkept)

    def _names(self) -> RowNames:
        columns = [Column(one.name, one.kind, nullable=True, declared=one.declared) for one in self.columns]
        if not self.key:
            columns.append(Column(_PLACE, "string", nullable=False))
        return RowNames(self.stream, tuple(columns), self.key, _PLACE)

    def _not_kept(self, unkept: Unkept) -> ValueNotKept:
        column, count = self.columns[unkept.position], len(unkept.texts)
        return ValueNotKept(
            f"{self.stream}: column {column.name} ({column.declared or column.kind}) has at least {count} "
            f"value{'s' if count != 1 else ''} {unkept.what}; {column.kind} cannot keep such values exactly",
            hint=f"read the column as text (as_text: {{{self.stream}: [{column.name}]}}), or leave those rows out "
            f"(where: {{{self.stream}: …}})",
        )


@dataclass(frozen=True)
class _Written:
    """Rows as the log would have them, one by one: for the few that are set aside."""

    split: CopySplit
    values: Part
    places: Numbers

    def __call__(self, row: int) -> Written:
        kinds = (column.kind for column in self.split.columns)
        texts = zip(self.values.written(row), kinds, strict=True)
        made = [_LOGGED.get(text or "", text) if kind == "bool" else text for text, kind in texts]
        page, item = item_of(int(self.places[row]))
        return made if self.split.key else [*made, f"({page},{item})"]
