"""How values travel from a driver to exact columns: the same types and checks in Spark's reader and in this process.

The database sends a column as one of a few plain types. Texts are taken over only in the form that their kind
has; anything else (a MySQL '0000-00-00', infinity, a year beyond 9999) stops the read with the column's name (G8).
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.model.errors import ValueNotKept
from headwater.sources.sql.relation import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn

_SPARK = {
    "bool": "BOOLEAN",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
    "string": "STRING",
    "binary": "BINARY",
}
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = _DAY + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_UTC = r"(Z|[+]00(:00)?)"
_SHAPES = {
    "bool": r"[01]",
    "int32": r"-?[0-9]{1,10}",
    "int64": r"-?[0-9]{1,19}",
    "date": _DAY,
    "timestamp": _TIME,
    "timestamptz": f"{_TIME}{_UTC}?",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def wire_name(position: int) -> str:
    """The name of a column under way: hostile names would have to survive Spark's quoting."""
    return f"h{position}"


def wire_schema(columns: Sequence[Column], flags: int) -> str:
    """The types that the database sends, as Spark's DDL."""
    types = [_wire(column) for column in columns] + ["BIGINT"] * flags
    return ", ".join(f"{wire_name(position)} {kind}" for position, kind in enumerate(types))


def spark_columns(columns: Sequence[Column], stream: str) -> list[SparkColumn]:
    """The exact columns of a DataFrame of the wire's columns."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; only where Spark is

    found = []
    for position, column in enumerate(columns):
        value, target = F.col(wire_name(position)), spark_type(column.kind)
        if column.as_text and column.kind != "string":
            plain = value
            if column.kind == "timestamptz":
                plain = F.concat(F.regexp_replace(value, f"{_UTC}$", ""), F.lit("+00:00"))
            fits = value.rlike(f"^{_shape(column.kind)}$")
            refused = F.raise_error(str(_not_kept(stream, column)))
            taken = plain.cast("INT").cast(target) if column.kind == "bool" else plain.try_cast(target)
            value = F.when(value.isNotNull(), F.coalesce(F.when(fits, taken), refused.cast(target)))
        found.append(value.cast(target).alias(column.name))
    return found


def arrow_batch(rows: Sequence[Sequence[Any]], columns: Sequence[Column], flags: int, stream: str) -> pa.RecordBatch:
    """The same in this process; rows as tuples of the wire's values."""
    import pyarrow as pa  # noqa: PLC0415 - an idle poll needs no Arrow

    from headwater.sources.sql.types import arrow_schema  # noqa: PLC0415

    shown = [*columns, *(Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(flags))]
    schema = arrow_schema(shown)
    arrays = [
        pa.array(_values(column, (row[position] for row in rows), stream), schema.field(position).type)
        for position, column in enumerate(shown)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def spark_type(kind: str) -> str:
    return _SPARK.get(kind) or kind.upper()


def _values(column: Column, values: Iterable[Any], stream: str) -> Iterable[Any]:
    if column.kind == "binary":
        return [None if value is None else bytes(value) for value in values]
    if not column.as_text or column.kind == "string":
        return list(values)
    return [None if value is None else _parsed(column, value, stream) for value in values]


def _parsed(column: Column, text: str, stream: str) -> Any:
    try:
        found = _value(column.kind, text) if re.fullmatch(_shape(column.kind), text) else None
    except ValueError:  # a day or an hour that there is not
        found = None
    if found is None:
        raise _not_kept(stream, column)
    return found


def _value(kind: str, text: str) -> Any:
    match kind:
        case "bool":
            return text == "1"
        case "int32" | "int64":
            return int(text)
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp":
            return dt.datetime.fromisoformat(text)
        case "timestamptz":
            return dt.datetime.fromisoformat(re.sub(f"{_UTC}$", "", text)).replace(tzinfo=dt.UTC)
        case _:
            return decimal.Decimal(text)


def _wire(column: Column) -> str:
    if column.as_text:
        return "STRING"
    return "DOUBLE" if column.kind == "float32" else spark_type(column.kind)


def _shape(kind: str) -> str:
    found = _DECIMAL.fullmatch(kind)
    if not found:
        return _SHAPES[kind]
    precision, scale = int(found[1]), int(found[2])
    fraction = f"([.][0-9]{{1,{scale}}})?" if scale else ""
    return f"-?[0-9]{{1,{max(precision - scale, 1)}}}{fraction}"


def _not_kept(stream: str, column: Column) -> ValueNotKept:
    return ValueNotKept(
        f"{stream}: column {column.name} ({column.declared or column.kind}) has a value that {column.kind} cannot keep exactly",
        hint=f"read the column as text (as_text: [{column.name}]), or leave those rows out (where: …)",
    )
