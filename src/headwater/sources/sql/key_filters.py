"""Conditions that filter rows by their key: by a few values of it, or by ranges."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.protocols.source import KeyRanges
from headwater.model.types import Column, CursorType
from headwater.sources.sql import statements
from headwater.sources.sql.database import Relation, Subject
from headwater.sources.sql.dialects import identifier

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.sql.dialects import Condition

KEYS_AT_ONCE = 500  # in one statement
_RANGES_AT_ONCE = 50
_MAX_KEYS = 100_000  # with more of them a full read is faster
_INTEGERS = ("int32", "int64")
_RANGE_TYPES = {
    "date": CursorType.DATE,
    "timestamp": CursorType.TIMESTAMP,
    "timestamptz": CursorType.TIMESTAMPTZ,
}


def key_conditions(relation: Relation, wanted: KeyRanges | pa.Table) -> list[Condition] | None:
    """One condition per statement; None: the database cannot filter by them."""
    if isinstance(wanted, KeyRanges):
        return _in_ranges(relation, wanted)
    columns = {column.name: column for column in relation.columns}
    key_columns = [columns[name] for name in wanted.column_names if name in columns]
    if len(key_columns) < len(wanted.column_names) or wanted.num_rows > _MAX_KEYS:
        return None
    if not all(_is_comparable_as_text(column, relation.subject) for column in key_columns):
        return None
    keys = zip(*(wanted.column(column.name).to_pylist() for column in key_columns), strict=True)
    condition = _in_column if len(key_columns) == 1 else _in_columns
    conditions = []
    while chunk := list(itertools.islice(keys, KEYS_AT_ONCE)):
        conditions.append(condition(relation.subject, key_columns, chunk))
    return conditions


def _in_column(subject: Subject, columns: Sequence[Column], keys: Sequence[tuple[object, ...]]) -> Condition:
    name, texts = columns[0].name, sorted({_text(value) for (value,) in keys if value is not None})
    if not texts:
        return statements.same_row(subject, {name: None})
    if subject.dialect == "sqlite":
        return statements.either(*(statements.same_row(subject, {name: text}) for text in texts))
    is_number = columns[0].type in _INTEGERS and subject.dialect != "postgres"
    literals = [exp.Literal.number(text) if is_number else exp.Literal.string(text) for text in texts]
    return exp.In(this=exp.column(identifier(name)), expressions=literals)


def _in_columns(subject: Subject, columns: Sequence[Column], keys: Sequence[tuple[object, ...]]) -> Condition:
    names = [column.name for column in columns]
    rows = [
        {name: None if value is None else _text(value) for name, value in zip(names, key, strict=True)} for key in keys
    ]
    return statements.either(*(statements.same_row(subject, row) for row in rows))


def _is_comparable_as_text(column: Column, subject: Subject) -> bool:
    """True if the database finds a value by our text of it."""
    if subject.dialect == "postgres":
        return not column.type.startswith("float")
    if subject.dialect == "sqlite":
        return column.type in (*_INTEGERS, "string")
    return column.type in _INTEGERS


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return "\\x" + value.hex()
        case dt.datetime() | dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _in_ranges(relation: Relation, wanted: KeyRanges) -> list[Condition] | None:
    column = next((column for column in relation.columns if column.name == wanted.column), None)
    cursor_type = None if column is None else _range_type(column, relation.subject)
    if column is None or cursor_type is None:
        return None
    subject = replace(relation.subject, cursor=column.name, cursor_type=cursor_type, declared=column.declared)
    ranges = [_between(subject, low, high) for low, high in wanted.bounds]
    return [
        statements.either(*ranges[first : first + _RANGES_AT_ONCE]) for first in range(0, len(ranges), _RANGES_AT_ONCE)
    ]


def _range_type(column: Column, subject: Subject) -> CursorType | None:
    if column.type in _INTEGERS:
        return CursorType.INTEGER
    if subject.dialect != "postgres" or column.as_text:
        return None
    return CursorType.DECIMAL if column.type.startswith("decimal") else _RANGE_TYPES.get(column.type)


def _between(subject: Subject, low: object, high: object) -> Condition:
    conditions: list[Condition] = [] if low is None else [statements.at_least(subject, low)]  # type: ignore[arg-type]
    conditions += [] if high is None else [statements.at_most(subject, high)]  # type: ignore[arg-type]
    return statements.both(conditions or [statements.with_value(subject)])
