"""Many JSON messages at once as columns: parsed by Arrow where all are plain, and inferred where no schema is declared.

The bad messages of a list are found by halving it, so that one of them costs a few more passes over the list, not one
Python call per message. Where most need the closer look, as with objects that are kept as text, it is the only one.

Arrow's parser is more lenient than JSON and than our types, and reads a stream, not messages. What it takes from here
must be what `strict` takes, message by message:

- It reads objects one after the other, wherever lines end, and skips blank lines. Every message on one line of its
  own that begins with `{` and ends with `}` closes that gap: `}`, newline, `{` can stand only between two objects of
  the outermost level, as JSON allows it neither inside an object or array nor, unescaped, inside a text. So every
  message holds at least one object, and as many rows as messages means: exactly one each.
- A first value `null` ends the process (seen with Arrow 26). No message here begins with it.
- It knows NaN and infinities, does not look at UTF-8, takes timestamps without a zone for UTC and drops zones where
  the type has none, rounds large numbers to infinity in `float`, counts a decimal's digits before it adds the scale's
  zeros, and reads a decimal 5e-324 as 0: looked at before or converted afterwards. Inside lists and structs only types
  without such traps pass.

Inference: boolean, bigint, double and string are found; objects, arrays, numbers without an exact place in those
types and mixtures are kept as JSON text. A column keeps the type that it was found with; new fields become new
columns.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.model.bisect import Part, bisect
from headwater.model.errors import InputError
from headwater.sources.ddl_schema import quoted
from headwater.sources.json.strict import Misfit, StrictJson, document, is_number

_FEW = 16
_MOSTLY = 4  # every fourth


@dataclass
class ParsedJson:
    """The rows of a list of messages, and the messages that have none."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)  # index in the list, reason


class StrictFallback(Protocol):
    """One message at a time; what it takes, the parser of many must take as the same."""

    def row(self, value: bytes) -> tuple[Any, ...]: ...
    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch: ...


class JsonDecoder:
    """Parses for one schema, from one thread."""

    def __init__(self, schema: pa.Schema, closer: StrictFallback | None = None) -> None:
        self.schema = schema
        self._fast, self._strict = ArrowJson(schema), closer or StrictJson(schema)
        self._use_fast = self._fast.usable

    @property
    def slow(self) -> bool:
        """Whether most messages needed the closer look."""
        return not self._use_fast

    def parse(self, values: Sequence[bytes | None]) -> ParsedJson:
        """A row for every message that has one, in order; a message without a value is one without fields."""
        if None in values:
            return self._parsed([b"{}" if value is None else value for value in values])
        return self._parsed(cast("Sequence[bytes]", values))

    def _parsed(self, values: Sequence[bytes]) -> ParsedJson:
        parsed = ParsedJson()
        slow = 0
        parts: Iterable[Part[Sequence[bytes], pa.RecordBatch]] = [Part(0, values, None)]
        for part in bisect(values, self._fast.parse, smallest=_FEW) if self._use_fast else parts:
            if part.result is not None:
                parsed.batches.append(part.result)
            else:
                slow += len(part.items)
                self._one_by_one(part.items, part.begin, parsed)
        self._use_fast = self._use_fast and slow * _MOSTLY <= len(values) + _FEW
        return parsed

    def _one_by_one(self, values: Sequence[bytes], begin: int, parsed: ParsedJson) -> None:
        rows = []
        for index, value in enumerate(values, start=begin):
            try:
                rows.append(self._strict.row(value))
            except Misfit as misfit:
                parsed.rejected.append((index, str(misfit)))
        if rows:
            parsed.batches.append(self._strict.batch(rows))


_SPACE = b" \t\r\n"
_NEWLINE, _OPEN, _CLOSE = b"\n{}"
_EXPONENT, _ZERO, _NINE, _PLUS, _MINUS = b"e09+-"
_BEFORE_VALUES = np.frombuffer(b":[,-" + _SPACE, np.uint8)
_AFTER_VALUES = np.frombuffer(b",}]" + _SPACE, np.uint8)
_LONGER = ord("i")  # Infinity
_IN_ROW = re.compile(r" in row (\d+)$")
_LOWER = 0x20  # the bit that makes a letter small
_PLAIN = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float64,
    pa.types.is_string,
)


class ArrowJson:
    """Parses for one schema; `usable` says whether the schema has only types that Arrow's parser keeps exactly."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._required = [field.name for field in schema if not field.nullable]
        self._decimals = any(pa.types.is_decimal(field.type) for field in schema)
        as_read = pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema])
        self._options = pj.ParseOptions(explicit_schema=as_read, unexpected_field_behavior="ignore")
        self._converted = {field.name: field.type for field in schema if as_read.field(field.name).type != field.type}
        self.stopped_at: int | None = (
            None  # the row at which the last parse went wrong, if Arrow reports it: a hint, no more
        )
        self.usable = all(pa.types.is_decimal(field.type) or _supported(field.type) for field in as_read)

    def parse(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row per message, or None."""
        joined = one_line_each(values)
        return None if joined is None else self.parse_lines(joined, len(values))

    def parse_lines(self, joined: bytes, count: int) -> pa.RecordBatch | None:
        """The same for messages that stand on lines of their own, every one from `{` to `}` (see `odd_lines`)."""
        letters = np.frombuffer(joined, np.uint8)
        if has_constants(letters) or not is_utf8(joined):
            return None
        if self._decimals and has_exponents(letters):
            return None
        reading = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
        self.stopped_at = None
        try:
            table = pj.read_json(pa.py_buffer(joined), reading, self._options)
            if table.num_rows != count:
                return None
            columns = [self._column(field, table.column(field.name)) for field in self._schema]
        except pa.ArrowInvalid as error:
            found = _IN_ROW.search(str(error))
            self.stopped_at = int(found[1]) if found else None
            return None
        if None in columns:
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, field: pa.Field, read: pa.ChunkedArray) -> pa.Array | None:
        column = read.combine_chunks() if read.num_chunks != 1 else read.chunk(0)
        if not field.nullable and column.null_count:
            return None
        if pa.types.is_decimal(field.type) and not _within(column, field.type):
            return None
        if field.name not in self._converted:
            return column
        # Arrow's own casts of text insist on a zone where the type has one, and on none where it has none.
        made = column.cast(field.type, safe=not pa.types.is_float32(field.type))
        if pa.types.is_float32(field.type) and pc.any(pc.is_inf(made)).as_py():
            return None
        return made


def odd_lines(letters: np.ndarray, newlines: np.ndarray) -> np.ndarray:
    """Which of the lines, each with its newline at the end, do not begin with `{` and end with `}`."""
    begins = np.concatenate(([0], newlines[:-1] + 1))[: len(newlines)]
    odd: np.ndarray = (letters[begins] != _OPEN) | (letters[newlines - 1] != _CLOSE)
    return odd


def _within(column: pa.Array, kind: pa.DataType) -> bool:
    most = Decimal(10) ** (kind.precision - kind.scale)
    found = pc.min_max(column).as_py()
    return all(value is None or value.copy_abs() < most for value in found.values())


def _read_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    return pa.float64() if pa.types.is_float32(kind) else kind


def _supported(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(field.nullable and _supported(field.type) for field in kind)
    if pa.types.is_list(kind):
        return bool(kind.value_field.nullable) and _supported(kind.value_type)
    return any(is_of(kind) for is_of in _PLAIN)


def one_line_each(values: Sequence[bytes]) -> bytes | None:
    """Joined, each on a line of its own from `{` to `}`; None where that cannot be."""
    joined = b"\n".join(values)
    if _separable(joined, len(values)):
        return joined
    # A tab in place of a newline changes neither what is valid JSON nor what it says.
    flat = b"\n".join([v.strip(_SPACE).replace(b"\n", b"\t").replace(b"\r", b"\t") for v in values])
    return flat if _separable(flat, len(values)) else None


def _separable(joined: bytes, count: int) -> bool:
    if not (joined.startswith(b"{") and joined.endswith(b"}")):
        return False
    letters = np.frombuffer(joined, np.uint8)
    lines = np.flatnonzero(letters == _NEWLINE)
    return (
        len(lines) == count - 1
        and bool((letters[lines - 1] == _CLOSE).all())
        and bool((letters[lines + 1] == _OPEN).all())
    )


def has_exponents(letters: np.ndarray) -> bool:
    """Whether a number may be written with one; a text that looks like it only costs the closer look."""
    places = np.flatnonzero((letters | _LOWER) == _EXPONENT)
    places = places[(places > 0) & (places < len(letters) - 1)]
    before, after = letters[places - 1], letters[places + 1]
    digit = (before >= _ZERO) & (before <= _NINE)
    return bool((digit & (((after >= _ZERO) & (after <= _NINE)) | (after == _PLUS) | (after == _MINUS))).any())


def has_constants(letters: np.ndarray) -> bool:
    """Whether NaN or an infinity may stand where a value does; a text that looks like it only costs the closer look."""
    return _stands_as_value(letters, b"NaN") or _stands_as_value(letters, b"Inf")


def _stands_as_value(letters: np.ndarray, word: bytes) -> bool:
    places = np.flatnonzero(letters[: -len(word)] == word[0])
    for offset in (1, 2):
        places = places[letters[places + offset] == word[offset]]
    after = letters[places + len(word)]
    # What follows a value; or the longer name. Texts that begin like it, as Information does, are frequent.
    places = places[np.isin(after, _AFTER_VALUES) | (after == _LONGER)]
    before = letters[places - 1]  # of a text that begins with it: its quote
    return bool(np.isin(before, _BEFORE_VALUES).any())


def is_utf8(data: bytes | mmap.mmap) -> bool:
    if isinstance(data, bytes) and data.isascii():
        return True
    edges = pa.py_buffer(np.array([0, len(data)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, edges, pa.py_buffer(data)])
    try:
        text.validate(full=True)  # three times as fast as decoding
    except pa.ArrowInvalid:
        return False
    return True


Columns = Mapping[str, tuple[int, str]]  # name → when it was inferred, type
Kinds = dict[str, set[str]]  # name → what kinds of values it was seen with

_BIGINT_END = 1 << 63
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


def merge_kinds(kinds: Kinds, more: Kinds) -> None:
    """Add what other values were seen with."""
    for name, seen in more.items():
        kinds.setdefault(name, set()).update(seen)


def with_new(known: Columns, kinds: Mapping[str, set[str]]) -> Columns:
    """Known columns as they are, new ones behind them. A field that has only been null is not a column yet."""
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
        whole = int(value) if len(digits) <= len(str(_BIGINT_END)) else _BIGINT_END
        if not -_BIGINT_END <= whole < _BIGINT_END:
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


_KEPT_DIGITS = 15
_WORD = 8
_ALL_DIGITS = 0x0101010101010101


def guessed_kinds(joined: bytes, count: int) -> Kinds | None:
    """Of so many objects, each on a line of its own from `{` to `}`."""
    letters = np.frombuffer(joined, np.uint8)
    if has_constants(letters) or not is_utf8(joined):
        return None
    try:
        table = pj.read_json(pa.py_buffer(joined), pj.ReadOptions(use_threads=False, block_size=len(joined) + 1))
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    if any(map(pa.types.is_floating, table.schema.types)) and (has_exponents(letters) or _has_long_numbers(letters)):
        return None
    return {name: _kinds(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _kinds(column: pa.ChunkedArray) -> set[str]:
    kind = column.type
    if pa.types.is_null(kind):
        return set()
    if pa.types.is_boolean(kind):
        return {"boolean"}
    if pa.types.is_floating(kind):
        return {"double"}
    if pa.types.is_integer(kind):
        found = pc.min_max(column).as_py()
        return {"bigint" if max(-found["min"], found["max"]) <= EXACT_IN_DOUBLE else "long bigint"}
    return {"json"} if pa.types.is_nested(kind) else {"string"}  # texts that look like moments are texts


def _has_long_numbers(letters: np.ndarray) -> bool:
    """Whether more than fifteen digits and points stand side by side: then eight of them fill a word of memory."""
    digits = ((letters - ord("0") <= 9) | (letters == ord("."))).astype(np.uint8)  # noqa: PLR2004 - it wraps around
    words = digits[: len(digits) // _WORD * _WORD].view(np.uint64)
    full = np.flatnonzero(words == _ALL_DIGITS) * _WORD
    padded = np.concatenate((np.zeros(_WORD, np.uint8), digits, np.zeros(2 * _WORD, np.uint8)))
    before = padded[full[:, None] + np.arange(_WORD)][:, ::-1]
    after = padded[full[:, None] + np.arange(2 * _WORD, 3 * _WORD)]
    sides = np.cumprod(before, axis=1).sum(axis=1) + np.cumprod(after, axis=1).sum(axis=1)
    return bool((sides + _WORD > _KEPT_DIGITS).any())
