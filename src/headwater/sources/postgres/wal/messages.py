"""The messages of PostgreSQL's plugin `pgoutput` (protocol version 1), the tuples in them, and texts as exact values (G8)."""

from __future__ import annotations

import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.bisect import bisect
from headwater.model.errors import RunError
from headwater.model.types import OUTSIDE_YEARS, arrow_type
from headwater.pg.copy.binary import NOT_FINITE, TOO_LONG, Numbers
from headwater.sources.postgres.catalog import Identity, Layout, WalColumn

# | letter | what it is |
# | --- | --- |
# | B, C | begin and commit of a transaction; all of it stands between them |
# | R | a table's layout, before its first row and when it changes |
# | I, U, D, T | rows inserted, updated, deleted; tables truncated |
# | M | a logical message, of any role |
# | Y, O | a type's name, and where a transaction came from first: ignored |

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = b"BCRIUDTM"
_KNOWN = b"BCRIUDTMYO"
OURS = b"headwater"
"""The prefix of our messages; others' may be many, and large."""

EPOCH = 946_684_800_000_000
"""2000, from where PostgreSQL counts microseconds, seen from 1970."""

BEGINS = [("letter", "u1"), ("lsn", ">i8"), ("time", ">i8"), ("transaction", ">u4")]
COMMITS = [("letter", "u1"), ("flags", "u1"), ("lsn", ">i8"), ("end", ">i8"), ("time", ">i8")]
_TRANSACTIONAL = 1
_Form = str | list[tuple[str, str]]


class Note(NamedTuple):
    prefix: str
    content: bytes


def read(data: Numbers, at: Numbers, form: _Form) -> Numbers:
    """Values of that form at each of these offsets. `data` reaches beyond the last."""
    layout: np.dtype[Any] = np.dtype(form)
    every = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data.data, strides=(1,))
    return every[at].view(layout)


def letters(data: Numbers, starts: Numbers) -> Numbers:
    """The type of each message. Raises RunError at an unknown one."""
    types = data[starts]
    unknown = np.bincount(types, minlength=256)
    unknown[list(_KNOWN)] = 0
    if unknown.any():
        raise RunError(f"the WAL holds messages of the unknown type {chr(int(unknown.argmax()))!r}")
    return types


def ours(data: Numbers, at: Numbers) -> Numbers:
    """A mask of the transactional messages with our prefix. One outside a transaction has no position."""
    prefix = np.frombuffer(OURS + b"\0", np.uint8)
    fields = read(data, at, [("letter", "u1"), ("flags", "u1"), ("lsn", ">i8"), ("prefix", f"{len(prefix)}u1")])
    return np.asarray((fields["flags"] == _TRANSACTIONAL) & (fields["prefix"] == prefix).all(axis=1))


def note(message: bytes) -> Note:
    prefix, _, rest = message[10:].partition(b"\0")
    (size,) = struct.unpack_from(">I", rest)
    return Note(prefix.decode(), rest[4 : 4 + size])


def truncated_oids(message: bytes) -> tuple[int, ...]:
    """The tables' oids, cascaded ones included; rows do not need the flags (CASCADE, RESTART IDENTITY)."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def layout(message: bytes) -> Layout:
    (oid,) = struct.unpack_from(">I", message, 1)
    schema, name, rest = message[5:].split(b"\0", 2)
    identity, (count,) = chr(rest[0]), struct.unpack_from(">H", rest, 1)
    columns, at = [], 3
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        type_oid, modifier = struct.unpack_from(">Ii", rest, end + 1)
        columns.append(WalColumn(rest[at + 1 : end].decode(), type_oid, modifier, bool(rest[at] & 1)))
        at = end + 9
    return Layout(oid, schema.decode() or "pg_catalog", name.decode(), cast("Identity", identity), tuple(columns))


# A tuple is its number of columns, and for each of them a letter: `t` a text with its length, `n` NULL, `u` a value in
# TOAST that did not change and is not sent. Texts stay where they are until Arrow gathers them.

TEXT, NULL, UNCHANGED = b"tnu"
_COUNT = 2  # bytes of the number of columns
_LENGTH = 5  # bytes of letter and length


@dataclass
class Cells:
    """One column's values in some rows."""

    begins: Numbers
    ends: Numbers
    letters: Numbers

    def take(self, rows: Numbers) -> Cells:
        return Cells(self.begins[rows], self.ends[rows], self.letters[rows])

    def put(self, rows: Numbers, others: Cells) -> None:
        self.begins[rows], self.ends[rows], self.letters[rows] = others.begins, others.ends, others.letters

    def clear(self, rows: Numbers) -> None:
        """Make them NULL."""
        self.ends[rows] = self.begins[rows]
        self.letters[rows] = NULL

    def fill_from(self, others: Cells) -> None:
        """Fill unchanged values from the former row, where it has them."""
        rows = np.flatnonzero((self.letters == UNCHANGED) & (others.letters == TEXT))
        if len(rows):
            self.put(rows, others.take(rows))


def tuples_at(data: Numbers, at: Numbers, columns: int) -> tuple[list[Cells], Numbers]:
    """The columns of the tuples at these offsets, and the ends of the tuples."""
    if (read(data, at, ">u2") != columns).any():
        raise RunError(f"the WAL holds a row that has not the {columns} columns of its table")
    cells = []
    at = at + _COUNT
    for _ in range(columns):
        head = read(data, at, [("letter", "u1"), ("length", ">i4")])
        letters = head["letter"].copy()
        is_text = letters == TEXT
        if is_text.all():
            begins = at + _LENGTH
            ends = begins + head["length"]
        else:
            if not (is_text | (letters == NULL) | (letters == UNCHANGED)).all():
                raise RunError("the WAL holds a value of an unknown form")
            begins = at + np.where(is_text, _LENGTH, 1)
            ends = begins + np.where(is_text, head["length"], 0)
        cells.append(Cells(begins, ends, letters))
        at = ends
    return cells, at.copy()  # cells are written to


def texts(data: pa.Buffer, cells: Cells) -> pa.Array:
    """The values as bytes; NULL where a value is absent."""
    count = len(cells.begins)
    # Values and the gaps between them alternate in one array over the messages; Arrow takes every other element.
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2], edges[1::2] = cells.begins, cells.ends
    edges[-1] = cells.ends.max(initial=0)
    alternating = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), data])
    values = alternating.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    is_text = cells.letters == TEXT
    if is_text.all():
        return values
    validity = pa.py_buffer(np.packbits(is_text, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *values.buffers()[1:]])


# Arrow casts whole columns, by casts that raise rather than alter. Where one raises, its distinct texts are cast again by
# halves: misfits come beside the column, which is NULL there.

_NOT_UTF8 = "that are not UTF-8"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_BYTEA = b"\\x"


class Typed(NamedTuple):
    array: pa.Array
    misfits: Mapping[int, str]  # row → the fault, as it follows "values"


def typed(texts: pa.Array, column_type: str) -> Typed:
    """Texts as bytes → values of a kind (`model/types.py`)."""
    try:
        return Typed(_cast(texts, column_type), {})
    except (pa.ArrowInvalid, binascii.Error):
        return _one_by_one(texts, column_type)


def _cast(texts: pa.Array, column_type: str) -> pa.Array:
    match column_type:
        case "string":
            return texts.cast(pa.string())  # raises where the bytes are not UTF-8
        case "bool":
            return _bools(texts)
        case "binary":
            return _bytes(texts)
    return texts.view(pa.string()).cast(arrow_type(column_type))


def _bools(texts: pa.Array) -> pa.Array:
    true = pc.equal(texts, b"t")
    if not pc.all(pc.or_(true, pc.equal(texts, b"f")), min_count=0).as_py():
        raise pa.ArrowInvalid("neither t nor f")
    return true


def _bytes(texts: pa.Array) -> pa.Array:
    r"""`\x` and two digits for each byte: the digits of all values are decoded at once."""
    present = texts.drop_null()
    if not len(present):
        return pa.nulls(len(texts), pa.binary())
    edges = np.frombuffer(present.buffers()[1], np.int32, len(present) + 1, present.offset * 4)
    letters = np.frombuffer(present.buffers()[2] or b"", np.uint8)[edges[0] : edges[-1]]
    begins, sizes = edges[:-1] - edges[0], np.diff(edges)
    if sizes.min() < len(_BYTEA) or (sizes % 2).any():
        raise pa.ArrowInvalid("half a byte")
    digits = np.ones(len(letters), np.bool_)
    for index, letter in enumerate(_BYTEA):
        if (letters[begins + index] != letter).any():
            raise pa.ArrowInvalid(r"not \x")
        digits[begins + index] = False
    content = binascii.unhexlify(letters[digits].data)
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.zeros(len(texts) + 1, np.int32)
    lengths[1:][valid] = sizes // 2 - 1
    offsets, validity = np.cumsum(lengths, dtype=np.int32), pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(texts), [validity, pa.py_buffer(offsets), pa.py_buffer(content)])


def _one_by_one(texts: pa.Array, column_type: str) -> Typed:
    """Misfits are mostly one text many times: infinity, NaN."""
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary
    misfits = _bad(distinct, column_type)
    reasons = {code: _why(distinct[code].as_py(), column_type) for code in misfits}
    castable = np.ones(len(distinct), np.bool_)
    castable[misfits] = False
    values = _cast(pc.if_else(pa.array(castable), distinct, pa.scalar(None, distinct.type)), column_type)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.isin(codes, misfits))
    return Typed(values.take(encoded.indices), {int(row): reasons[int(codes[row])] for row in rows})


def _bad(texts: pa.Array, column_type: str) -> list[int]:
    """The indices of the texts that cannot be cast."""
    parts = bisect(texts, lambda some: _cast(some, column_type), (pa.ArrowInvalid, binascii.Error))
    return [part.begin for part in parts if part.result is None]


def _why(text: bytes, column_type: str) -> str:
    if column_type == "string":
        return _NOT_UTF8
    if column_type in ("date", "timestamp", "timestamptz"):
        return OUTSIDE_YEARS
    if column_type.startswith("decimal"):
        return NOT_FINITE if text.decode(errors="replace") in _NOT_FINITE else TOO_LONG
    return f"that are no {column_type}"
