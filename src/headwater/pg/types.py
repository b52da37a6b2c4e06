"""PostgreSQL's types, by the oids that the server sends with a result."""

from __future__ import annotations

from headwater.model.types import CursorType, decimal_type

# Oids of built-in types never change: they are part of PostgreSQL's protocol.
_TYPES = {
    16: "bool",
    17: "binary",  # bytea
    18: "string",  # "char"
    19: "string",  # name
    20: "int64",
    21: "int32",  # int2
    23: "int32",
    25: "string",  # text
    700: "float32",
    701: "float64",
    1042: "string",  # char(n), with its padding
    1043: "string",  # varchar
    1082: "date",
    1114: "timestamp",
    1184: "timestamptz",
}
NUMERIC = 1700
JSONB = 3802
PADDED = 1042
_CURSORS = {
    20: CursorType.INTEGER,
    21: CursorType.INTEGER,
    23: CursorType.INTEGER,
    25: CursorType.STRING,
    1042: CursorType.STRING,
    1043: CursorType.STRING,
    1082: CursorType.DATE,
    1114: CursorType.TIMESTAMP,
    1184: CursorType.TIMESTAMPTZ,
    1700: CursorType.DECIMAL,
    2950: CursorType.UUID,
}
_HEADER = 4  # of a type modifier


def column_type(oid: int, modifier: int) -> str | None:
    """The type that a column is read as; None: as text that the database makes."""
    if oid == NUMERIC:
        digits = numeric_digits(modifier)
        return None if digits is None else decimal_type(*digits)
    return _TYPES.get(oid)


def cursor_type(oid: int) -> CursorType | None:
    return _CURSORS.get(oid)


def numeric_digits(modifier: int) -> tuple[int, int] | None:
    """Precision and scale of a numeric's type modifier; None: it has neither."""
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    scale = packed & 0x7FF
    return packed >> 16, scale - 0x800 if scale & 0x400 else scale
