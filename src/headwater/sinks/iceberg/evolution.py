"""How a table's schema follows its source: a decision, made before anything is written.

Columns are added, types widened, NULLs allowed. Everything else could lose or alter values and is refused,
column by column, with what to do about it (G12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from headwater.model.errors import SchemaRefused
from headwater.sinks.iceberg.types import (
    Column,
    IcebergType,
    TableSchema,
    UnknownType,
    digits,
    iceberg_type,
    shape,
    type_text,
)

# Names under which Iceberg and Spark show what a row's file and position are.
_RESERVED = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_WIDER = {("int", "long"), ("float", "double")}


@dataclass(frozen=True)
class Evolution:
    """What must change in the table before the rows fit; refusals name what cannot."""

    add: tuple[Column, ...] = ()  # their ids are placeholders: the table gives out its own
    widen: tuple[tuple[str, str], ...] = ()  # column, its new type
    relax: tuple[str, ...] = ()  # columns that must take NULL from now on
    refusals: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.add or self.widen or self.relax)

    def check(self, table: str) -> None:
        """Raise SchemaRefused with every refusal."""
        if self.refusals:
            listed = "\n".join(f"  {refusal}" for refusal in self.refusals)
            raise SchemaRefused(
                f"{table} cannot take the source's columns without loss:\n{listed}",
                hint="change the source's columns (columns:, as_text:) or a transform, or land in another table",
            )


def plan_new(rows: pa.Schema) -> Evolution:
    """What stands against a new table for these rows."""
    return Evolution(refusals=tuple(_bad_names(rows)) + tuple(_bad_types(rows)))


def plan_evolution(table: TableSchema, rows: pa.Schema) -> Evolution:
    """Compare a table with the rows that are to land in it."""
    refusals = [*_bad_names(rows), *_bad_types(rows), *_other_case(table, rows)]
    bad = {field.name for field in rows if not _has_type(field.type)}
    add, widen, relax = [], [], []
    for field in rows:
        column = table.column(field.name)
        if field.name in bad:
            continue
        kind = iceberg_type(field.type, count(1))
        if column is None:
            add.append(Column(0, field.name, required=False, type=kind))
            continue
        if column.required and field.nullable:
            relax.append(column.name)
        step = _step(column.type, kind)
        if step == "refuse":
            refusals.append(_mismatch(column, kind))
        elif step == "widen":
            widen.append((column.name, str(kind)))
    present = set(rows.names)
    relax += [column.name for column in table.columns if column.required and column.name not in present]
    return Evolution(tuple(add), tuple(widen), tuple(relax), tuple(refusals))


def _step(table: IcebergType, rows: IcebergType) -> str:
    """`fits`, `widen` or `refuse`."""
    if shape(table) == shape(rows):
        return "fits"
    if not (isinstance(table, str) and isinstance(rows, str)):
        return "refuse"
    if (rows, table) in _WIDER:
        return "fits"
    if (table, rows) in _WIDER:
        return "widen"
    have, want = digits(table), digits(rows)
    if have and want and have[1] == want[1]:
        return "fits" if have[0] >= want[0] else "widen"
    return "refuse"


def _mismatch(column: Column, kind: IcebergType) -> str:
    return (
        f"{column.name!r} is {type_text(column.type)} in the table and {type_text(kind)} in the source: "
        f"cast it in a transform, or rename it to land it as a new column"
    )


def _bad_names(rows: pa.Schema) -> Iterator[str]:
    for name in rows.names:
        if not name:
            yield "a column has no name: give it one in the query"
        elif name.lower() in _RESERVED:
            yield f"{name!r} is a name that Iceberg keeps for itself: rename it in a query or transform"
    for lowered, times in Counter(name.lower() for name in rows.names).items():
        if times > 1:
            same = ", ".join(repr(name) for name in rows.names if name.lower() == lowered)
            yield f"{same} differ in case only, and Spark cannot tell them apart: rename one in a query or transform"


def _bad_types(rows: pa.Schema) -> Iterator[str]:
    for field in rows:
        if not _has_type(field.type):
            yield f"{field.name!r} is {field.type}, for which Iceberg has no exact type: read it as text (as_text:)"


def _has_type(kind: pa.DataType) -> bool:
    try:
        iceberg_type(kind, count(1))
    except UnknownType:
        return False
    return True


def _other_case(table: TableSchema, rows: pa.Schema) -> Iterator[str]:
    lowered = {column.name.lower(): column.name for column in table.columns}
    for name in rows.names:
        known = lowered.get(name.lower())
        if known is not None and known != name and known not in rows.names:
            yield f"{name!r} is called {known!r} in the table: the names differ in case only, rename one"
