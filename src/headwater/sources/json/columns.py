"""Columns inferred from JSON, for messages, lines and Debezium's events alike.

A column is boolean, bigint, double or string. Objects, arrays, numbers without an exact value in those types, and
mixtures are JSON text in a string. A column stays as it was inferred first; new fields become new columns.

Arrow infers the types of many messages at once. The strict parser infers those of messages that Arrow refuses, or for
which it could be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.bisect import bisect
from headwater.model.errors import InputError
from headwater.sources.ddl_schema import quoted
from headwater.sources.json.decoder import AFTER_VALUES, STRICT_ROWS, one_line_each, read_objects
from headwater.sources.json.strict import document, is_number
from headwater.sources.values import Misfit

Columns = Mapping[str, tuple[int, str]]  # name → when it was inferred, type
SeenTypes = dict[str, set[str]]  # name → types of the values seen so far

_BIGINT_END = 1 << 63
EXACT_IN_DOUBLE = 1 << 53


def observe(values: Iterable[bytes | None], seen_types: SeenTypes) -> None:
    """Note the types of the values of each field; what is no object brings none, and becomes a reject."""
    for value in values:
        if value is None:
            continue
        try:
            fields = document(value)
        except Misfit:
            continue
        for name, item in fields:
            seen = seen_types.setdefault(name, set())
            if item is not None:
                seen.add(_json_type(item))


def merge_seen_types(seen_types: SeenTypes, more: SeenTypes) -> None:
    """Add what other values were seen with."""
    for name, seen in more.items():
        seen_types.setdefault(name, set()).update(seen)


def with_new(known: Columns, seen_types: Mapping[str, set[str]]) -> Columns:
    """Known columns as they are, new ones behind them. A field that has only been null is not a column yet."""
    number = 1 + max((number for number, _ in known.values()), default=-1)
    new = {name: seen for name, seen in seen_types.items() if name not in known and seen}
    return {**known, **{name: (number + n, _type(seen)) for n, (name, seen) in enumerate(new.items())}}


def ddl_of(columns: Columns) -> str:
    """As a schema that a user could write."""
    ordered = sorted(columns.items(), key=lambda item: (item[1][0], item[0]))
    return ", ".join(f"{quoted(name)} {data_type}" for name, (_, data_type) in ordered)


def check_names(where: str, columns: Iterable[str], reserved: Iterable[str]) -> None:
    """Raise InputError where names cannot be columns beside each other."""
    names = [*columns, *reserved]
    folded = [name.lower() for name in names]
    twice = [name for name in names if folded.count(name.lower()) > 1]
    if twice or "" in names:
        raise InputError(
            f"{where}: fields that cannot be columns beside each other: {', '.join(twice) or 'one without a name'}",
            hint="write schema: with the fields to keep, or rename metadata",
        )


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if not is_number(value):
        return "string" if isinstance(value, str) else "json"
    digits = value.lstrip("-")
    if digits.isdigit():
        number = int(value) if len(digits) <= len(str(_BIGINT_END)) else _BIGINT_END
        if not -_BIGINT_END <= number < _BIGINT_END:
            return "json"
        return integer_type(number, number)
    return "double" if Decimal(repr(float(value))) == Decimal(value) else "json"


def _type(seen: set[str]) -> str:
    if len(seen) == 1:
        only = next(iter(seen))
        return {"json": "string", "long bigint": "bigint"}.get(only, only)
    if seen == {"bigint", "long bigint"}:
        return "bigint"
    return "double" if seen == {"bigint", "double"} else "string"


def infer_values(values: Iterable[bytes | None], seen_types: SeenTypes) -> None:
    """Add the types of the fields of these messages, in the order of appearance."""
    messages = [value for value in values if value is not None]
    for part in bisect(messages, _guess_messages, smallest=STRICT_ROWS):
        if part.result is None:
            observe(part.items, seen_types)
        else:
            merge_seen_types(seen_types, part.result)


def _guess_messages(values: Sequence[bytes]) -> SeenTypes | None:
    joined = one_line_each(values)
    return None if joined is None else guess_types(joined, len(values))


def guess_types(joined: bytes, count: int) -> SeenTypes | None:
    """Of so many objects, each on a line of its own from `{` to `}`. None: Arrow refuses them, or could be wrong."""
    try:
        table = read_objects(joined, count)
    except pa.ArrowInvalid:
        return None
    return None if table is None else guess_fields(zip(table.column_names, table.columns, strict=True), joined)


def guess_fields(fields: Iterable[tuple[str, pa.Array | pa.ChunkedArray]], joined: bytes) -> SeenTypes | None:
    """The types of fields as Arrow reads them from these objects. None: Arrow could be wrong."""
    seen_types: SeenTypes = {}
    for name, column in fields:
        seen_types.setdefault(name, set()).update(_guess(column))
    seen = set().union(*seen_types.values())
    # Arrow makes doubles of whole numbers among fractions, even of those that no double represents.
    return None if _UNKNOWN in seen or ("double" in seen and has_long_numbers(joined)) else seen_types


_UNKNOWN = "unknown"


def _guess(column: pa.Array | pa.ChunkedArray) -> set[str]:
    data_type = column.type
    if pa.types.is_null(data_type):
        return set()
    if pa.types.is_boolean(data_type):
        return {"boolean"}
    if pa.types.is_floating(data_type):
        return {_UNKNOWN if pc.max(pc.abs(column)).as_py() >= EXACT_IN_DOUBLE else "double"}
    if pa.types.is_integer(data_type):
        edges = pc.min_max(column).as_py()
        return {integer_type(edges["min"], edges["max"])}
    return {"json"} if pa.types.is_nested(data_type) else {"string"}  # texts that look like moments are texts


def integer_type(least: int, most: int) -> str:
    """Of whole numbers between these."""
    return "bigint" if max(-least, most) <= EXACT_IN_DOUBLE else "long bigint"


_EXACT_DIGITS = 15  # so many digits are exact in a double
_EXACT_EXPONENT = 2  # and a negative exponent of so many
_MARGIN = np.zeros(_EXACT_DIGITS + 3, np.uint8)
_POINT, _MINUS, _EXPONENT, _LOWER = ord("."), ord("-"), ord("e"), 0x20


def has_long_numbers(joined: bytes) -> bool:
    """Whether a number of less than 2**53 may have no exact double, by its digits or by its exponent.

    A text that looks like one only costs the strict parser's time; so UUIDs must not look like one.
    """
    letters = np.concatenate((_MARGIN, np.frombuffer(joined, np.uint8), _MARGIN))
    points = np.flatnonzero(letters == _POINT)
    before, after = (
        _are_digits(letters[points + side * 3]) & _are_digits(letters[points + side * 8]) for side in (-1, 1)
    )
    points = points[before | after]  # most have none there; of more than fifteen digits at least eight are on one side
    if (_run(letters, points, -1) + _run(letters, points, 1) > _EXACT_DIGITS).any():
        return True
    minus = np.flatnonzero(letters == _MINUS)
    minus = minus[(letters[minus - 1] | _LOWER) == _EXPONENT]
    minus = minus[_are_digits(letters[minus - 2])]
    exponent = _run(letters, minus, 1)
    ends = np.isin(letters[minus + exponent + 1], AFTER_VALUES) | (exponent > _EXACT_DIGITS)
    return bool(((_run(letters, minus - 1, -1) > _EXACT_DIGITS) | (ends & (exponent > _EXACT_EXPONENT))).any())


def _run(letters: np.ndarray, positions: np.ndarray, side: int) -> np.ndarray:
    """How many digits stand side by side next to each place: at most sixteen are counted."""
    digits = _are_digits(letters[positions[:, None] + side * np.arange(1, _EXACT_DIGITS + 2)])
    count: np.ndarray = np.cumprod(digits, axis=1, dtype=np.uint8).sum(axis=1, dtype=np.int64)
    return count


def _are_digits(letters: np.ndarray) -> np.ndarray:
    digits: np.ndarray = letters - ord("0") <= 9  # noqa: PLR2004 - it wraps around
    return digits
