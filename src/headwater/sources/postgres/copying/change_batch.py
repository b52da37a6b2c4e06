"""A table's rows as change rows: each read in the snapshot, known by where it stood."""

from __future__ import annotations

import decimal
from collections.abc import Mapping

import pyarrow as pa

from headwater.model.changes import OP, POSITION, SOURCE_TIME, position
from headwater.sources.postgres.change_schema import ROW
from headwater.sources.postgres.copying.row_places import Numbers

_TRUNCATES, _READS = 1, 2  # minor numbers of positions (`model/changes.py`)


class ChangeBatches:
    """Makes the batches of one split, in the stream's schema."""

    def __init__(self, schema: pa.Schema, homes: Mapping[str, str], place: int, moment: int) -> None:
        self._schema, self._place, self._moment = schema, place, moment
        self._sources = {home: name for name, home in homes.items()}
        self._alike: dict[str, pa.Array] = {}  # columns with one value in all rows, as long as was needed so far

    def truncate(self) -> pa.RecordBatch:
        """One row: all that landed of the table before is gone."""
        row = {OP: "t", POSITION: self._position(_TRUNCATES), SOURCE_TIME: self._moment, ROW: 0}
        return pa.RecordBatch.from_pylist([row], schema=self._schema)

    def read(self, values: pa.RecordBatch, rows: Numbers) -> pa.RecordBatch:
        """Values where they live, NULL in columns that the table has no more."""
        arrays = [self._array(field, values, rows) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, values: pa.RecordBatch, rows: Numbers) -> pa.Array:
        if field.name == ROW:
            return pa.array(rows, pa.int64())
        if field.name in self._sources:
            found = values.column(self._sources[field.name])
            return found if found.type == field.type else found.cast(field.type)
        known = self._alike.get(field.name)
        if known is None or len(known) < len(rows):
            known = self._alike[field.name] = self._repeated(field, len(rows))
        return known.slice(0, len(rows))

    def _repeated(self, field: pa.Field, count: int) -> pa.Array:
        value = {OP: "r", POSITION: self._position(_READS), SOURCE_TIME: self._moment}.get(field.name)
        return pa.nulls(count, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), count)

    def _position(self, minor: int) -> decimal.Decimal:
        return decimal.Decimal(position(self._place, minor))
