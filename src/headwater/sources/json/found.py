"""Columns found in JSON where nobody wrote a schema.

boolean, bigint, double and string are found; objects, arrays, numbers without an exact place in those types and
mixtures are kept as JSON text. A column keeps the type that it was found with; new fields become new columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from headwater.model.errors import InputError
from headwater.sources.ddl_schema import quoted
from headwater.sources.json.strict import Misfit, document, is_number

Columns = Mapping[str, tuple[int, str]]  # name → when it was found, type
Kinds = dict[str, set[str]]  # name → what kinds of values it was seen with

_LONG = 1 << 63
EXACT_IN_DOUBLE = 1 << 53


def observe(values: Iterable[bytes | None], kinds: Kinds) -> None:
    """Note what kinds of values each field has; what is no object brings none, and becomes a reject."""
    for value in values:
        if value is None:
            continue
        try:
            found = document(value)
        except Misfit:
            continue
        for name, held in found:
            seen = kinds.setdefault(name, set())
            if held is not None:
                seen.add(_kind(held))


def with_new(known: Columns, kinds: Mapping[str, set[str]]) -> Columns:
    """Known columns as they are, new ones behind them. A field that has only been null is none yet."""
    number = 1 + max((number for number, _ in known.values()), default=-1)
    new = {name: seen for name, seen in kinds.items() if name not in known and seen}
    return {**known, **{name: (number + n, _type(seen)) for n, (name, seen) in enumerate(new.items())}}


def ddl_of(columns: Columns) -> str:
    """As a schema that a user could write."""
    ordered = sorted(columns.items(), key=lambda item: (item[1][0], item[0]))
    return ", ".join(f"{quoted(name)} {kind}" for name, (_, kind) in ordered)


def check_names(where: str, columns: Iterable[str], taken: Iterable[str]) -> None:
    """Raise InputError where names cannot be columns beside each other."""
    names = [*columns, *taken]
    folded = [name.lower() for name in names]
    twice = [name for name in names if folded.count(name.lower()) > 1]
    if twice or "" in names:
        raise InputError(
            f"{where}: fields that cannot be columns beside each other: {', '.join(twice) or 'one without a name'}",
            hint="write schema: with the fields to keep, or rename metadata",
        )


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if not is_number(value):
        return "string" if isinstance(value, str) else "json"
    digits = value.lstrip("-")
    if digits.isdigit():
        whole = int(value) if len(digits) <= len(str(_LONG)) else _LONG
        if not -_LONG <= whole < _LONG:
            return "json"
        return "bigint" if abs(whole) <= EXACT_IN_DOUBLE else "long bigint"
    return "double" if Decimal(repr(float(value))) == Decimal(value) else "json"


def _type(seen: set[str]) -> str:
    if len(seen) == 1:
        only = next(iter(seen))
        return {"json": "string", "long bigint": "bigint"}.get(only, only)
    if seen == {"bigint", "long bigint"}:
        return "bigint"
    return "double" if seen == {"bigint", "double"} else "string"
