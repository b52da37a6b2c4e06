"""Arrays converted, and which of their values cannot be: found by halves, as most arrays have none."""

from __future__ import annotations

import pyarrow as pa

from headwater.sources.ddl_schema import ddl_of
from headwater.sources.debezium.kinds import Kind

_SHOWN = 60


def kept(kind: Kind, array: pa.Array) -> tuple[pa.Array, list[int]]:
    """The column, NULL in place of values that have none; and their places (G8)."""
    try:
        return kind.converted(array), []
    except (ValueError, ArithmeticError):
        if len(array) <= 1:
            return pa.nulls(len(array), kind.column), [*range(len(array))]
    middle = len(array) // 2
    (left, bad), (right, more) = kept(kind, array[:middle]), kept(kind, array[middle:])
    return pa.concat_arrays([left, right]), [*bad, *(middle + place for place in more)]


def why_not(name: str, kind: Kind, value: pa.Scalar) -> str:
    """The reason, with the column and the value as it was written."""
    text = str(value.as_py())
    return f"{name}: {text if len(text) <= _SHOWN else f'{text[:_SHOWN]}…'} cannot be kept as {ddl_of(kind.column)}"
