"""CSV: a row per record; columns by the names in the first one, whatever their order, or by position.

A row's number is that of its record; the header is the first, and blank lines are none. Columns that the schema does not
name are left out, columns that an object does not have are NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headwater.config.objects_source import CsvSettings
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.csv_joined import JoinedCsv, join
from headwater.sources.objects.formats.csv_records import check_quotes, first_record, raw
from headwater.sources.objects.formats.csv_texts import TextRows
from headwater.sources.objects.formats.csv_values import TextColumn
from headwater.sources.objects.formats.decoded import Decoded, Part, joined, one_by_one


class CsvObjects:
    """For one schema. `declared`: somebody wrote it, so without a header its columns are the objects' by position."""

    def __init__(self, schema: pa.Schema, settings: CsvSettings, *, declared: bool) -> None:
        self._schema, self._settings = schema, settings
        self._declared = list(schema.names) if declared else None
        self._columns = {field.name: TextColumn(field) for field in schema}

    def decode(self, contents: Sequence[Content]) -> Decoded:
        together, alone = join(contents, self._settings)
        made = Decoded()
        for group in together:
            try:
                _divide(group, joined(self.pieces(group.content)), made)
            except ObjectFailed:  # each has to say so for itself
                alone += group.owners.tolist()
        closer = one_by_one(self.pieces, [contents[number] for number in alone])
        return joined([made, closer.of(alone)])

    def pieces(self, content: Content) -> Iterator[Decoded]:
        names = column_names(content, self._settings, self._declared)
        if not names:
            return
        wanted = self._wanted(names)
        check_quotes(content, self._settings)
        rows = TextRows(content, names, wanted, self._settings)
        for batch, numbers in rows.batches():
            yield self._typed(content, names, batch, numbers)
        reasons = {number: f"{len(names)} columns, {count} values" for number, count in rows.uneven.items()}
        yield Decoded(bad=self._bad(content, names, reasons))

    def _wanted(self, names: Sequence[str]) -> list[str]:
        wanted = [name for name in self._schema.names if name in names]
        if not wanted and any(self._schema.names):
            raise ObjectFailed(
                f"none of the columns {', '.join(self._schema.names)} is there; its columns: {', '.join(names)}"
            )
        if twice := [name for name in wanted if names.count(name) > 1]:
            raise ObjectFailed(f"column {twice[0]} stands twice in its header")
        missing = [field.name for field in self._schema if not field.nullable and field.name not in names]
        if missing:
            raise ObjectFailed(f"no column {missing[0]}, and the schema says NOT NULL")
        return wanted

    def _typed(self, content: Content, names: Sequence[str], batch: pa.RecordBatch, numbers: np.ndarray) -> Decoded:
        columns, reasons = [], dict[int, str]()
        for field in self._schema:
            place = batch.schema.get_field_index(field.name)
            if place < 0:
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column, misfits = self._columns[field.name].convert(batch.column(place))
            columns.append(column)
            reasons = {**misfits, **reasons}
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if reasons:
            kept = np.ones(len(numbers), bool)
            kept[list(reasons)] = False
            rows = rows.filter(pa.array(kept))
            bad = self._bad(content, names, {int(numbers[place]): why for place, why in reasons.items()})
            return Decoded([Part.of_one(rows, numbers[kept])], bad)
        return Decoded([Part.of_one(rows, numbers)])

    def _bad(self, content: Content, names: Sequence[str], reasons: Mapping[int, str]) -> list[BadRow]:
        payloads = raw(content, self._settings, reasons) if reasons else {}
        more = {"columns": list(names)}  # a replay has the record alone
        return [BadRow(0, number, reasons[number], payloads[number], more) for number in sorted(reasons)]


def _divide(group: JoinedCsv, whole: Decoded, made: Decoded) -> None:
    """Add the rows of a group to what was made, as rows of its objects."""
    for part in whole.parts:
        made.parts.append(Part.of_rows(part.rows, *group.places(part.row_numbers())))
    for row in whole.bad:
        (owner,), (number,) = group.places(np.array([row.number]))
        made.bad.append(replace(row, owner=int(owner), number=int(number)))


def column_names(content: Content, settings: CsvSettings, declared: Sequence[str] | None) -> list[str]:
    """Of the object's own columns; none: it has no record. Raises ObjectFailed."""
    first = first_record(content, settings)
    if settings.header:
        try:
            return [name.decode() for name in first]
        except UnicodeDecodeError as error:
            raise ObjectFailed(f"the name of a column is not UTF-8 at byte {error.start:,}") from None
    if not first:
        return []
    if declared is None:
        return [f"column{number}" for number in range(1, len(first) + 1)]
    if len(first) != len(declared):
        raise ObjectFailed(f"{len(first)} columns, and the schema has {len(declared)}")
    return list(declared)
