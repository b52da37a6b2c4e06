"""A split of a copy: ranges of pages that an executor reads in the copy's exported snapshot."""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.model.errors import ValueNotKept
from headwater.model.rows import (
    OP,
    POSITION,
    SOURCE_TIME,
    ExactBatch,
    InexactValues,
    OnReject,
    RowIdentity,
    RowTexts,
    exact_rows,
    position,
)
from headwater.model.secret import Secret
from headwater.model.types import Column, arrow_schema
from headwater.pg.copy.binary import decode, exact_batch
from headwater.pg.copy.stream import Chunk
from headwater.sources.postgres.catalog import ROW
from headwater.sources.postgres.initial_copy.pages import (
    CopiedColumn,
    HeapRange,
    Numbers,
    ctid_of,
    row_numbers,
    values_end,
)
from headwater.sources.postgres.initial_copy.reader import HeapQuery, HeapReader
from headwater.sources.postgres.initial_copy.snapshot import DEFAULT, Tuning

_CTID = "ctid"  # identifies a row without a key
_WAL_BOOL = {"true": "t", "false": "f"}


@dataclass(frozen=True)
class CopySplit:
    """Some pages of a table. A broken connection neither loses nor repeats a row (`reader.py`)."""

    stream: str
    url: Secret  # prints as ****
    snapshot: str
    ranges: tuple[HeapRange, ...]
    ordinal: int  # of the snapshot's LSN (`LsnMark.ordinal`)
    moment: int
    key: tuple[str, ...]
    columns: tuple[CopiedColumn, ...] = field(repr=False)
    schema: pa.Schema = field(repr=False)
    homes: Mapping[str, str] = field(repr=False)  # column of the table → column of the stream
    where: str = field(repr=False, default="")  # may hold values
    replaces: bool = False  # begins with the truncate of what landed before
    tuning: Tuning = DEFAULT

    @property
    def rows(self) -> int | None:
        counts = [heap.rows for heap in self.ranges]
        return None if None in counts else sum(count or 0 for count in counts) + self.replaces

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        return exact_rows(
            self._checked_batches() if on_reject is None else self.read_exact(), self._identity(), on_reject
        )

    def _checked_batches(self) -> Iterator[ExactBatch]:
        for batch in self.read_exact():
            for inexact in batch.inexact:
                raise self._not_kept(inexact)
            yield batch

    def read_exact(self) -> Iterator[ExactBatch]:
        batches = ChangeBatches(self.schema, self.homes, self.ordinal, self.moment)
        if self.replaces:
            yield ExactBatch(batches.truncate(), (), lambda _: ())
        reader = HeapReader(HeapQuery(self.stream, self.url, self.snapshot, self.columns, self.where, self.tuning))
        columns = [Column(column.name, column.column_type, nullable=True) for column in self.columns]
        try:
            for heap in self.ranges:
                for chunk, ctids in reader.chunks(heap):
                    values = self._values(chunk, columns)
                    change = batches.read(values.batch, row_numbers(ctids, heap.number))
                    yield ExactBatch(change, values.inexact, _RowTexts(self, values, ctids))
        finally:
            reader.close()

    def _values(self, chunk: Chunk, columns: list[Column]) -> ExactBatch:
        schema = arrow_schema(columns)
        batch, misfits = decode(chunk.data, chunk.starts, values_end(chunk), schema, self.stream)
        return exact_batch(batch, columns, schema, misfits)

    def _identity(self) -> RowIdentity:
        columns = [
            Column(column.name, column.column_type, nullable=True, declared=column.declared) for column in self.columns
        ]
        if not self.key:
            columns.append(Column(_CTID, "string", nullable=False))
        return RowIdentity(self.stream, tuple(columns), self.key, _CTID)

    def _not_kept(self, inexact: InexactValues) -> ValueNotKept:
        column, count = self.columns[inexact.position], len(inexact.texts)
        return ValueNotKept(
            f"{self.stream}: column {column.name} ({column.declared or column.column_type}) has at least {count} "
            f"value{'s' if count != 1 else ''} {inexact.what}; {column.column_type} cannot keep such values exactly",
            hint=f"read the column as text (as_text: {{{self.stream}: [{column.name}]}}), or leave those rows out "
            f"(where: {{{self.stream}: …}})",
        )


@dataclass(frozen=True)
class _RowTexts:
    """The texts of a row as the WAL would have them: for the few rejects."""

    split: CopySplit
    values: ExactBatch
    ctids: Numbers

    def __call__(self, row: int) -> RowTexts:
        column_types = (column.column_type for column in self.split.columns)
        texts = zip(self.values.row_texts(row), column_types, strict=True)
        wal_texts = [_WAL_BOOL.get(text or "", text) if column_type == "bool" else text for text, column_type in texts]
        page, item = ctid_of(int(self.ctids[row]))
        return wal_texts if self.split.key else [*wal_texts, f"({page},{item})"]


_TRUNCATES, _READS = 1, 2  # minor numbers of positions (`model/rows.py`)


class ChangeBatches:
    """Makes the batches of one split, in the stream's schema."""

    def __init__(self, schema: pa.Schema, homes: Mapping[str, str], ordinal: int, moment: int) -> None:
        self._schema, self._ordinal, self._moment = schema, ordinal, moment
        self._sources = {home: name for name, home in homes.items()}
        self._constants: dict[str, pa.Array] = {}  # columns with one value in all rows, of the greatest length so far

    def truncate(self) -> pa.RecordBatch:
        """One row: it replaces all that landed of the table before."""
        row = {OP: "t", POSITION: self._position(_TRUNCATES), SOURCE_TIME: self._moment, ROW: 0}
        return pa.RecordBatch.from_pylist([row], schema=self._schema)

    def read(self, values: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
        """The values in the stream's columns, NULL in columns that the table no longer has."""
        arrays = [self._array(field, values, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, values: pa.RecordBatch, rows: Numbers) -> pa.Array:
        if field.name == ROW:
            return pa.array(rows, pa.int64())
        if field.name in self._sources:
            column = values.column(self._sources[field.name])
            return column if column.type == field.type else column.cast(field.type)
        constant = self._constants.get(field.name)
        if constant is None or len(constant) < len(rows):
            constant = self._constants[field.name] = self._constant(field, len(rows))
        return constant.slice(0, len(rows))

    def _constant(self, field: pa.Field, count: int) -> pa.Array:
        value = {OP: "r", POSITION: self._position(_READS), SOURCE_TIME: self._moment}.get(field.name)
        return pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)

    def _position(self, minor: int) -> decimal.Decimal:
        return decimal.Decimal(position(self._ordinal, minor))
