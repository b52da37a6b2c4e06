"""Parquet: rows by row groups, in the columns that the file itself declares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.conform import Conforming
from headwater.sources.objects.formats.decoded import Decoded, one_by_one
from headwater.sources.objects.own_columns import own_columns

_ROWS = 64 << 10
_UTC = pa.timestamp("us", "UTC")
_NS_RANGE = 1 << 53  # microseconds that nanoseconds of 64 bits reach for certain


class ParquetObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._conforming = Conforming(schema)

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return one_by_one(self.pieces, contents)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        file = ParquetObject(pa.py_buffer(content))
        self._conforming.check(own_columns(file.schema))
        first = 1
        for group in range(file.groups):
            for batch in file.rows(group):
                yield self._conforming.rows(batch, np.arange(first, first + batch.num_rows))
                first += batch.num_rows

    def groups(self, file: ParquetObject, begin: int, end: int) -> Iterator[Decoded]:
        """Some row groups of a file whose others are other tasks' work: a broken one is set aside by itself."""
        self._conforming.check(own_columns(file.schema))
        for group in range(begin, end):
            first, count = file.place(group)
            try:
                batches = list(file.rows(group))
            except ObjectFailed as failed:
                reason = f"row group {group} ({count:,} rows): {failed.reason}"
                yield Decoded(bad=[BadRow(0, first, reason, b"", {"row_group": group})])
                continue
            for batch in batches:
                yield self._conforming.rows(batch, np.arange(first, first + batch.num_rows))
                first += batch.num_rows


class ParquetObject:
    """One file. Whatever is wrong with it is an ObjectFailed."""

    def __init__(self, source: pa.Buffer | pa.NativeFile) -> None:
        self._source = source
        self._file = self._opened("us")
        self._int96 = self._old_moments()

    @property
    def groups(self) -> int:
        return int(self._file.num_row_groups)

    @property
    def schema(self) -> pa.Schema:
        fields = self._file.schema_arrow
        return pa.schema([pa.field(f.name, _UTC) if f.name in self._int96 else f for f in fields])

    def place(self, group: int) -> tuple[int, int]:
        """The number of a row group's first row, and how many it has."""
        return self._ends[group] + 1, self._ends[group + 1] - self._ends[group]

    @cached_property
    def _ends(self) -> list[int]:
        counts = (self._file.metadata.row_group(group).num_rows for group in range(self.groups))
        return [0, *accumulate(counts)]

    def size(self, group: int) -> int:
        """In bytes, as it is stored."""
        about = self._file.metadata.row_group(group)
        return sum(about.column(number).total_compressed_size for number in range(about.num_columns))

    def rows(self, group: int) -> Iterator[pa.RecordBatch]:
        try:
            if not self._int96:
                yield from self._file.iter_batches(_ROWS, row_groups=[group])
                return
            table = self._file.read_row_group(group)
            for name in self._int96:
                place = table.schema.get_field_index(name)
                table = table.set_column(place, name, self._moments(group, name, table[name]))
            yield from table.to_batches(_ROWS)
        except (pa.ArrowException, OSError) as error:
            raise ObjectFailed(f"bad Parquet: {error}") from None

    def _opened(self, unit: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                self._source, coerce_int96_timestamp_unit=unit, page_checksum_verification=True, pre_buffer=True
            )
        except (pa.ArrowException, OSError) as error:
            raise ObjectFailed(f"no Parquet: {error}") from None

    def _old_moments(self) -> list[str]:
        """Columns in which Spark, Impala and Hive long kept moments: days and nanoseconds, of UTC although nothing says so."""
        columns = [self._file.schema.column(number) for number in range(len(self._file.schema.names))]
        found = [column for column in columns if column.physical_type == "INT96"]
        if nested := [column.path for column in found if column.path != column.name]:
            raise ObjectFailed(f"{nested[0]}: INT96 is read as a column only, not in lists and structs")
        return [column.name for column in found]

    def _moments(self, group: int, name: str, rounded: pa.ChunkedArray) -> pa.ChunkedArray:
        """Arrow rounds them to microseconds, or reads nanoseconds and lets years beyond 2262 overflow: whichever is exact."""
        exact = self._opened("ns").read_row_group(group, columns=[name])[name]
        near = pc.less(pc.abs(rounded.cast(pa.int64())), _NS_RANGE)
        if pc.all(near, min_count=0).as_py():
            return exact.cast(pa.timestamp("ns", "UTC"))
        if pc.all(pc.equal(exact.filter(near), rounded.filter(near).cast(pa.timestamp("ns"))), min_count=0).as_py():
            return rounded.cast(_UTC)
        raise ObjectFailed(f"{name}: nanoseconds beside moments that are too far for them")
