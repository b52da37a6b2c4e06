"""Many JSON messages at once as columns: parsed by Arrow where all are plain, otherwise one by one (`strict`).

Bad messages are found by bisection. Where Arrow refuses most messages, as with objects that are read as text, only the
strict parser is used.

Arrow's parser is more lenient than JSON and than our types, and reads a stream, not messages. What it takes from here
must be what `strict` takes, message by message:

- It reads objects one after the other, wherever lines end, and skips blank lines. Every message on one line of its
  own that begins with `{` and ends with `}` closes that gap: `}`, newline, `{` can stand only between two objects of
  the outermost level, as JSON allows it neither inside an object or array nor, unescaped, inside a text. So every
  message holds at least one object, and as many rows as messages means: exactly one each.
- A first value `null` ends the process (seen with Arrow 26). No message here begins with it.
- It knows NaN and infinities, does not check UTF-8, takes timestamps without a zone for UTC and drops zones where
  the type has none, rounds large numbers to infinity in `float`, counts a decimal's digits before it adds the scale's
  zeros, and reads a decimal 5e-324 as 0. Such values are searched before, or converted afterwards. Inside lists and
  structs only types without such traps pass.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.model.bisect import Part, bisect
from headwater.sources.json.strict import StrictJson
from headwater.sources.values import Misfit, ParsedValues

STRICT_ROWS = 16  # so few are parsed one by one at once
_REFUSED_FRACTION = 4  # Arrow is not used any more where it refuses more than every fourth message


class StrictParser(Protocol):
    """Parses one message at a time. Where Arrow takes a message, too, both make the same row of it."""

    def row(self, value: bytes) -> tuple[Any, ...]: ...
    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch: ...


class JsonDecoder:
    """Parses for one schema, from one thread."""

    def __init__(self, schema: pa.Schema, strict: StrictParser | None = None) -> None:
        self.schema = schema
        self._arrow, self._strict = ArrowJson(schema), strict or StrictJson(schema)
        self.strict_only = not self._arrow.usable  # or Arrow refused most messages

    def parse(self, values: Sequence[bytes | None]) -> ParsedValues:
        """A row for every message that has one, in order; a message without a value is one without fields."""
        if None in values:
            return self._parsed([b"{}" if value is None else value for value in values])
        return self._parsed(cast("Sequence[bytes]", values))

    def _parsed(self, values: Sequence[bytes]) -> ParsedValues:
        parsed, refused = ParsedValues(), 0
        parts: Iterable[Part[Sequence[bytes], pa.RecordBatch]] = [Part(0, values, None)]
        if not self.strict_only:
            parts = bisect(values, self._arrow.parse, smallest=STRICT_ROWS)
        for part in parts:
            if part.result is not None:
                parsed.batches.append(part.result)
            else:
                refused += len(part.items)
                self._parse_each(part.items, part.begin, parsed)
        self.strict_only = self.strict_only or refused * _REFUSED_FRACTION > len(values) + STRICT_ROWS
        return parsed

    def _parse_each(self, values: Sequence[bytes], begin: int, parsed: ParsedValues) -> None:
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
AFTER_VALUES = np.frombuffer(b",}]" + _SPACE, np.uint8)
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
        self._decimals = any(pa.types.is_decimal(field.type) for field in schema)
        as_read = pa.schema([pa.field(field.name, _read_as(field.type)) for field in schema])
        self._options = pj.ParseOptions(explicit_schema=as_read, unexpected_field_behavior="ignore")
        self._converted = {field.name: field.type for field in schema if as_read.field(field.name).type != field.type}
        self.bad_row: int | None = None  # for which Arrow refused the last messages, if it reports it: a hint, no more
        self.usable = all(pa.types.is_decimal(field.type) or _supported(field.type) for field in as_read)

    def parse(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """One row per message, or None."""
        joined = one_line_each(values)
        return None if joined is None else self.parse_lines(joined, len(values))

    def parse_lines(self, joined: bytes, count: int) -> pa.RecordBatch | None:
        """The same for messages that stand on lines of their own, every one from `{` to `}` (see `odd_lines`)."""
        self.bad_row = None
        if self._decimals and has_exponents(np.frombuffer(joined, np.uint8)):
            return None
        try:
            table = read_objects(joined, count, self._options)
            if table is None:
                return None
            columns = [self._column(field, table.column(field.name)) for field in self._schema]
        except pa.ArrowInvalid as error:
            row = _IN_ROW.search(str(error))
            self.bad_row = int(row[1]) if row else None
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
        converted = column.cast(field.type, safe=not pa.types.is_float32(field.type))
        if pa.types.is_float32(field.type) and pc.any(pc.is_inf(converted)).as_py():
            return None
        return converted


def read_objects(joined: bytes, count: int, options: pj.ParseOptions | None = None) -> pa.Table | None:
    """As `parse_lines`; by default in the columns and types that Arrow infers. Raises ArrowInvalid."""
    if has_constants(np.frombuffer(joined, np.uint8)) or not is_utf8(joined):
        return None
    reading = pj.ReadOptions(use_threads=False, block_size=len(joined) + 1)
    table = pj.read_json(pa.py_buffer(joined), reading, options)
    return table if table.num_rows == count else None


def odd_lines(letters: np.ndarray, newlines: np.ndarray) -> np.ndarray:
    """Which of the lines, each with its newline at the end, do not begin with `{` and end with `}`."""
    begins = np.concatenate(([0], newlines[:-1] + 1))[: len(newlines)]
    odd: np.ndarray = (letters[begins] != _OPEN) | (letters[newlines - 1] != _CLOSE)
    return odd


def _within(column: pa.Array, data_type: pa.DataType) -> bool:
    most = Decimal(10) ** (data_type.precision - data_type.scale)
    return all(value is None or value.copy_abs() < most for value in pc.min_max(column).as_py().values())


def _read_as(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type) or pa.types.is_date(data_type):
        return pa.string()
    return pa.float64() if pa.types.is_float32(data_type) else data_type


def _supported(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return all(field.nullable and _supported(field.type) for field in data_type)
    if pa.types.is_list(data_type):
        return bool(data_type.value_field.nullable) and _supported(data_type.value_type)
    return any(is_of(data_type) for is_of in _PLAIN)


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
    """Whether a number may be written with one; a text that looks like it only costs the strict parser's time."""
    positions = np.flatnonzero((letters | _LOWER) == _EXPONENT)
    positions = positions[(positions > 0) & (positions < len(letters) - 1)]
    before, after = letters[positions - 1], letters[positions + 1]
    digit = (before >= _ZERO) & (before <= _NINE)
    return bool((digit & (((after >= _ZERO) & (after <= _NINE)) | (after == _PLUS) | (after == _MINUS))).any())


def has_constants(letters: np.ndarray) -> bool:
    """Whether NaN or an infinity may stand where a value does; a text that looks like it only costs time, as above."""
    return _stands_as_value(letters, b"NaN") or _stands_as_value(letters, b"Inf")


def _stands_as_value(letters: np.ndarray, word: bytes) -> bool:
    positions = np.flatnonzero(letters[: -len(word)] == word[0])
    for offset in (1, 2):
        positions = positions[letters[positions + offset] == word[offset]]
    after = letters[positions + len(word)]
    # What follows a value; or the longer name. Texts that begin like it, as Information does, are frequent.
    positions = positions[np.isin(after, AFTER_VALUES) | (after == _LONGER)]
    before = letters[positions - 1]  # of a text that begins with it: its quote
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
