"""Parquet: rows by row groups, in the columns of the file's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, decode_each
from headwater.sources.objects.formats.file_schema import Conformer, file_columns

_ROWS = 64 << 10
_UTC = pa.timestamp("us", "UTC")
_NS_RANGE = 1 << 53  # microseconds that nanoseconds of 64 bits reach for certain


class ParquetObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._conformer = Conformer(schema)

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return decode_each(self.pieces, contents)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        file = ParquetObject(pa.py_buffer(content))
        self._conformer.check(file_columns(file.schema))
        first = 1
        for group in range(file.groups):
            for batch in file.rows(group):
                yield self._conformer.rows(batch, np.arange(first, first + batch.num_rows))
                first += batch.num_rows

    def groups(self, file: ParquetObject, begin: int, end: int) -> Iterator[Decoded]:
        """Row groups of a file whose other groups belong to other tasks: each broken one is a reject."""
        self._conformer.check(file_columns(file.schema))
        for group in range(begin, end):
            first, count = file.row_range(group)
            try:
                batches = list(file.rows(group))
            except ObjectFailed as failed:
                reason = f"row group {group} ({count:,} rows): {failed.reason}"
                yield Decoded(bad=[BadRow(0, first, reason, b"", {"row_group": group})])
                continue
            for batch in batches:
                yield self._conformer.rows(batch, np.arange(first, first + batch.num_rows))
                first += batch.num_rows


class ParquetObject:
    """One file. Raises ObjectFailed for every error."""

    def __init__(self, source: pa.Buffer | pa.NativeFile) -> None:
        self._source = source
        self._file = self._open("us")
        self._int96 = self._int96_columns()

    @property
    def groups(self) -> int:
        return int(self._file.num_row_groups)

    @property
    def schema(self) -> pa.Schema:
        fields = self._file.schema_arrow
        return pa.schema([pa.field(f.name, _UTC) if f.name in self._int96 else f for f in fields])

    def row_range(self, group: int) -> tuple[int, int]:
        """The number of a row group's first row, and its number of rows."""
        return self._ends[group] + 1, self._ends[group + 1] - self._ends[group]

    @cached_property
    def _ends(self) -> list[int]:
        counts = (self._file.metadata.row_group(group).num_rows for group in range(self.groups))
        return [0, *accumulate(counts)]

    def size(self, group: int) -> int:
        """Compressed bytes."""
        group_metadata = self._file.metadata.row_group(group)
        return sum(group_metadata.column(number).total_compressed_size for number in range(group_metadata.num_columns))

    def rows(self, group: int) -> Iterator[pa.RecordBatch]:
        try:
            if not self._int96:
                yield from self._file.iter_batches(_ROWS, row_groups=[group])
                return
            table = self._file.read_row_group(group)
            for name in self._int96:
                index = table.schema.get_field_index(name)
                table = table.set_column(index, name, self._int96_timestamps(group, name, table[name]))
            yield from table.to_batches(_ROWS)
        except (pa.ArrowException, OSError) as error:
            raise ObjectFailed(f"bad Parquet: {error}") from None

    def _open(self, unit: str) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(
                self._source, coerce_int96_timestamp_unit=unit, page_checksum_verification=True, pre_buffer=True
            )
        except (pa.ArrowException, OSError) as error:
            raise ObjectFailed(f"not Parquet: {error}") from None

    def _int96_columns(self) -> list[str]:
        """Timestamps as Spark, Impala and Hive long wrote them: days and nanoseconds, implicitly in UTC."""
        columns = [self._file.schema.column(number) for number in range(len(self._file.schema.names))]
        int96 = [column for column in columns if column.physical_type == "INT96"]
        if nested := [column.path for column in int96 if column.path != column.name]:
            raise ObjectFailed(f"{nested[0]}: INT96 is supported in columns only, not in lists and structs")
        return [column.name for column in int96]

    def _int96_timestamps(self, group: int, name: str, rounded: pa.ChunkedArray) -> pa.ChunkedArray:
        """Arrow rounds to microseconds, or overflows beyond the year 2262 with nanoseconds: use the exact one."""
        exact = self._open("ns").read_row_group(group, columns=[name])[name]
        near = pc.less(pc.abs(rounded.cast(pa.int64())), _NS_RANGE)
        if pc.all(near, min_count=0).as_py():
            return exact.cast(pa.timestamp("ns", "UTC"))
        if pc.all(pc.equal(exact.filter(near), rounded.filter(near).cast(pa.timestamp("ns"))), min_count=0).as_py():
            return rounded.cast(_UTC)
        raise ObjectFailed(f"{name}: has nanoseconds and also timestamps beyond their range")
