"""Columns written as Spark's DDL, `id bigint NOT NULL, at timestamp, tags array<string>`, without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.model.types import MAX_DECIMAL_DIGITS

_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*')|([A-Za-z_][\w]*|\d+)|([<>(),:]))")
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
SIMPLE_TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
)  # fmt: skip


@dataclass(frozen=True)
class DdlType:
    """`bigint`; `decimal` with its digits; `array`, `map` and `struct` with their inner types."""

    name: str
    digits: tuple[int, int] = (0, 0)
    fields: tuple[DdlColumn, ...] = ()


@dataclass(frozen=True)
class DdlColumn:
    """A name, a type, and whether it may be missing."""

    name: str
    type: DdlType
    required: bool = False


def parse_ddl(text: str) -> tuple[DdlColumn, ...]:
    """The columns that the text declares. Raises ValueError with the position of the mistake."""
    tokens = _Tokens(text)
    columns = tuple(_columns(tokens, colon=False))
    tokens.end()
    names = [column.name.lower() for column in columns]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise ValueError(f"column {duplicate} is declared twice")
    return columns


class _Quoted(str):
    """A name in backticks: never a sign or a keyword."""

    __slots__ = ()


class _Tokens:
    """The text as tokens, read from the left."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next = text, list(_tokens(text)), 0

    def peek(self) -> str:
        if self._next == len(self._tokens) or isinstance(self._tokens[self._next][0], _Quoted):
            return ""
        return self._tokens[self._next][0].lower()

    def take(self, what: str) -> str:
        if self._next == len(self._tokens):
            raise ValueError(f"{self._text.strip()!r} ends before {what}")
        self._next += 1
        return self._tokens[self._next - 1][0]

    def expect(self, sign: str) -> None:
        at = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        if self.peek() != sign:
            raise ValueError(f"expected {sign} before {self._text[at:].strip()[:20]!r}")
        self._next += 1

    def skip(self, sign: str) -> bool:
        matches = self.peek() == sign
        self._next += matches
        return matches

    def end(self) -> None:
        if self._next < len(self._tokens):
            rest = self._text[self._tokens[self._next][1] :].strip()
            raise ValueError(f"cannot read {rest[:30]!r}; write for example: id bigint, name string")


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if not match:
            raise ValueError(f"cannot read {text[position:].strip()[:20]!r}")
        quoted, literal, word, sign = match.groups()
        yield (_Quoted(quoted.replace("``", "`")) if quoted else literal or word or sign), position
        position = match.end()


def _columns(tokens: _Tokens, *, colon: bool) -> Iterator[DdlColumn]:
    while True:
        name = tokens.take("a column's name")
        if not isinstance(name, _Quoted) and not re.match(r"\w", name):
            raise ValueError(f"expected a column's name, found {name!r}")
        if not tokens.skip(":") and colon:
            tokens.expect(":")
        data_type, required = _type(tokens), False
        if tokens.skip("not"):
            tokens.expect("null")
            required = True
        if tokens.skip("comment"):
            tokens.take("a comment")
        yield DdlColumn(str(name), data_type, required)
        if not tokens.skip(","):
            return


def _type(tokens: _Tokens) -> DdlType:
    spelling = tokens.take("a type")
    name = _ALIASES.get(spelling.lower(), spelling.lower())
    if name in SIMPLE_TYPES:
        return DdlType(name)
    if name == "decimal":
        return DdlType(name, _digits(tokens))
    if name == "array":
        tokens.expect("<")
        fields: tuple[DdlColumn, ...] = (DdlColumn("element", _type(tokens)),)
    elif name == "map":
        tokens.expect("<")
        key = DdlColumn("key", _type(tokens), required=True)
        tokens.expect(",")
        fields = (key, DdlColumn("value", _type(tokens)))
    elif name == "struct":
        tokens.expect("<")
        fields = tuple(_columns(tokens, colon=False))
    else:
        raise ValueError(
            f"unknown type {spelling}; write one of {', '.join(SIMPLE_TYPES)}, decimal(p,s), array, map and struct"
        )
    tokens.expect(">")
    return DdlType(name, fields=fields)


def _digits(tokens: _Tokens) -> tuple[int, int]:
    if not tokens.skip("("):
        return 10, 0
    precision, scale = tokens.take("a number of digits"), "0"
    if tokens.skip(","):
        scale = tokens.take("a number of digits")
    tokens.expect(")")
    if not (
        precision.isdigit()
        and scale.isdigit()
        and int(scale) <= int(precision) <= MAX_DECIMAL_DIGITS
        and int(precision)
    ):
        raise ValueError(
            f"decimal({precision},{scale}) is not supported; at most {MAX_DECIMAL_DIGITS} digits, the scale within them"
        )
    return int(precision), int(scale)
