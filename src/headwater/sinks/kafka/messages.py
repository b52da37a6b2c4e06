"""Rows → messages: keys, values and positions of a batch. Runs in this process and in tasks, without Spark.

Databases return the rows of a window in any order, and a table that has grown is cut into other splits; so neither a
row number nor a split's number is the same in a retry. The content is. A position is a digest of pipeline, stream,
window and the message's value:

- Two messages with one position hold the same row with the same content, so dropping one loses nothing.
- A row is written again under its old position, unless it changed in the source since the first try, or the
  pipeline's settings did (format, transform); then both versions are there, the newer one later in its partition.

Rows of one window that are equal in every column, which only a source without a primary key can have, are numbered:
`digest.1` is the second. Each task numbers its own rows; in a window that several tasks send, the task's number comes
first (`digest-3.1`), so that equal rows of two tasks have different positions. If a retry cuts such a window into
other splits, positions differ: without a primary key, and above `SMALL_WINDOW` rows, a crash can leave repeats with
other positions. The reverse never happens: no two rows share a position.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.positions import sorted_distinct
from headwater.model.errors import UnknownName, ValueNotKept
from headwater.model.rows import Rows
from headwater.sinks.text_values import flat_column, is_nested, plain_column, refuse_not_finite

_DIGEST_BYTES = 16
_SALT_BYTES = 16


@dataclass(frozen=True)
class PositionScheme:
    """How a landing's rows are identified; sent to the tasks."""

    salt: bytes
    unique: bool  # no two rows are equal: the source has a primary key, and no transform repeats rows
    keyed: bool  # the source has a primary key: rows that a transform repeats are in one task

    def digest(self, value: bytes) -> str:
        """The position of a message whose row is unique."""
        return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, salt=self.salt).hexdigest()

    def positions_of(self, part: int | None) -> Positions:
        """For one task; without a number, for the only one."""
        return Positions(self, part)


def scheme_for(pipeline: str, stream: str, window: str, *, unique: bool, keyed: bool) -> PositionScheme:
    named = f"{pipeline}\x00{stream}\x00{window}".encode()
    salt = hashlib.blake2b(named, digest_size=_SALT_BYTES).digest()
    return PositionScheme(salt, unique, keyed)


class Positions:
    """The positions of one task's messages, in the order of the calls."""

    def __init__(self, scheme: PositionScheme, part: int | None) -> None:
        self._digest = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES, salt=scheme.salt)
        self._equals = None if scheme.unique else _EqualRows()
        self._suffix = "" if part is None or scheme.keyed else f"-{part}"

    def __call__(self, values: Sequence[bytes]) -> list[str]:
        digest, suffix = self._digest, self._suffix
        if self._equals is None:
            return [digest(value).hexdigest() for value in values]
        digests = [digest(value).digest() for value in values]
        positions = [f"{value.hex()}{suffix}" for value in digests]
        for index, before in self._equals.numbered(digests):
            positions[index] += f".{before}"
        return positions


class _EqualRows:
    """Counts equal rows. A task may have millions of rows, so eight bytes of each are kept."""

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []  # sorted each
        self._counts: dict[bytes, int] = {}  # of rows that may be equal to others

    def numbered(self, digests: Sequence[bytes]) -> list[tuple[int, int]]:
        """The indexes of rows that repeat earlier ones, and how many came before."""
        if not digests:
            return []
        short = np.frombuffer(b"".join(digests), np.uint64)[:: _DIGEST_BYTES // 8]
        unique, inverse, counts = np.unique(short, return_inverse=True, return_counts=True)
        known = self._contains(short)
        self._remember(unique)
        repeats = []
        for index in np.flatnonzero(known | (counts[inverse] > 1)).tolist():
            digest = digests[index]
            before = self._counts.get(digest, int(known[index]))
            self._counts[digest] = before + 1
            if before:
                repeats.append((index, before))
        return repeats

    def _contains(self, short: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        known = np.zeros(len(short), np.bool_)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, short), len(run) - 1)
            known |= run[at] == short
        return known

    def _remember(self, run: npt.NDArray[np.uint64]) -> None:
        # Runs of similar length are merged: few runs, and each is copied seldom.
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = sorted_distinct(self._runs.pop(), run)
        self._runs.append(run)


# An Arrow array of text is limited to 2 GiB, and the Python values of a chunk are in memory together.
_CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 20_000


class Values(Protocol):
    """Turns rows into the values of messages; picklable."""

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]: ...


@dataclass(frozen=True)
class JsonValues:
    """A JSON object per row."""

    def __call__(self, batch: pa.RecordBatch) -> list[bytes]:
        return list(json_objects(batch).to_pylist())


@dataclass(frozen=True)
class Chunk:
    """Some messages, ready to be sent."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None]
    positions: Sequence[str] | None  # None: without headers

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class MessageMaker:
    """How one landing's rows become messages; sent to the tasks."""

    topic: str
    values: Values
    key: tuple[str, ...]
    positions: PositionScheme | None
    max_bytes: int  # of key and value, that the topic accepts

    def chunks(self, batches: Iterable[pa.RecordBatch], part: int | None) -> Iterator[Chunk]:
        """The messages of one task, or of a window that one process sends. Raises for a row that is too large."""
        positions = self.positions.positions_of(part) if self.positions else None
        before = 0
        for batch in batches:
            for rows in _sliced(batch):
                values, keys = self.values(rows), keys_of(rows, self.key)
                chunk = Chunk(values, keys, positions(values) if positions else None)
                self._check_sizes(chunk, before, part)
                before += len(chunk)
                yield chunk

    def _check_sizes(self, chunk: Chunk, before: int, part: int | None) -> None:
        for number, (value, key) in enumerate(zip(chunk.values, chunk.keys, strict=True)):
            size = len(value) + len(key or b"")
            if size > self.max_bytes:
                position = chunk.positions[number] if chunk.positions else None
                row = _describe_row(before + number, part, position)
                raise ValueNotKept(
                    f"topic {self.topic}: {row} makes a message of {size:,} bytes; the topic accepts {self.max_bytes:,}",
                    hint="raise max.message.bytes of the topic, or exclude large columns or rows "
                    "(columns: or where: of the source, or a transform)",
                )


def key_columns(setting: tuple[str, ...] | None, rows: Rows) -> tuple[str, ...]:
    """The columns of the setting, or the source's primary key."""
    key = rows.key if setting is None else setting
    missing = [name for name in key if name not in rows.schema.names]
    if missing:
        raise UnknownName(
            f"{rows.stream} has no column {missing[0]!r} for the message's key",
            hint=f"choose key: from {', '.join(rows.schema.names)}; or write key: [] for messages without a key",
        )
    return key


def keys_of(batch: pa.RecordBatch, key: tuple[str, ...]) -> Sequence[bytes | None]:
    """Of one column its text, or its bytes; NULL: no key. Of several a JSON object."""
    if not key:
        return [None] * batch.num_rows
    if len(key) > 1:
        return list(json_objects(batch.select(list(key))).to_pylist())
    column = batch.column(batch.schema.get_field_index(key[0]))
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return list(column.to_pylist())
    return list(json_texts(column, key[0]).cast(pa.binary()).to_pylist())


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    fitting = batch.num_rows * _CHUNK_BYTES // max(1, batch.nbytes)
    step = max(1, min(_CHUNK_ROWS, fitting))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _describe_row(number: int, part: int | None, position: str | None) -> str:
    row = f"row {number}" if part is None else f"row {number} of part {part}"
    return f"{row} (headwater.position {position})" if position else row


_MUST_ESCAPE = r'[\x00-\x1f"\\]'
_CONTROL = r"[\x00-\x1f]"
_INTEGER = r"^-?[0-9]+$"


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """One object per row, as an array of UTF-8 bytes; every column in each."""
    if not batch.num_columns:
        return pa.array([b"{}"] * batch.num_rows, pa.binary())
    pieces: list[pa.Array | pa.Scalar] = []
    literal = "{"
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        literal += json.dumps(name, ensure_ascii=False) + ":"
        text, quote = _column(column, name)
        pieces += [pa.scalar(literal + quote), text]
        literal = quote + ","
    pieces.append(pa.scalar(literal[:-1] + "}"))
    return pc.binary_join_element_wise(*pieces, pa.scalar("")).cast(pa.binary())


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """Texts without quotes, other values as JSON; NULL stays NULL."""
    if is_nested(column.type):
        return _nested(column, name)
    flat = flat_column(column)
    return flat.cast(pa.string()) if _is_text(flat.type) else _bare(flat, name)


def _column(column: pa.Array, name: str) -> tuple[pa.Array, str]:
    """JSON without NULL, and the quotes that belong around each value."""
    if is_nested(column.type):
        return pc.fill_null(_nested(column, name), "null"), ""
    flat = flat_column(column)
    if not _is_text(flat.type):
        return pc.fill_null(_bare(flat, name), "null"), ""
    text = _escaped(flat.cast(pa.string()))
    if not text.null_count:
        return text, '"'
    quote = pa.scalar('"')
    return pc.fill_null(pc.binary_join_element_wise(quote, text, quote, pa.scalar("")), "null"), ""


def _bare(flat: pa.Array, name: str) -> pa.Array:
    """Numbers and booleans."""
    if not pa.types.is_floating(flat.type):
        return flat.cast(pa.string())
    if pc.any(pc.invert(pc.is_finite(flat))).as_py():
        raise ValueNotKept(
            f"column {name} contains NaN or infinity, which JSON cannot represent",
            hint="add the column to as_text: of the source, or use format: avro",
        )
    # The shortest text that reads back as the same number.
    text = (flat.cast(pa.float32()) if pa.types.is_float16(flat.type) else flat).cast(pa.string())
    integers = pc.match_substring_regex(text, _INTEGER)
    # 1.0 would become "1", which readers may take for an integer, and -0.0 would lose its sign.
    return pc.if_else(integers, pc.binary_join_element_wise(text, ".0", ""), text) if pc.any(integers).as_py() else text


def _escaped(text: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(text, _MUST_ESCAPE)).as_py():
        return text
    control = pc.fill_null(pc.match_substring_regex(text, _CONTROL), False)  # noqa: FBT003 - Arrow's signature
    escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"')
    if not pc.any(control).as_py():
        return escaped
    rare = [json.dumps(value, ensure_ascii=False)[1:-1] for value in text.filter(control).to_pylist()]
    return pc.replace_with_mask(escaped, control, pa.array(rare, pa.string()))


def _nested(column: pa.Array, name: str) -> pa.Array:
    values = plain_column(column, name)
    refuse_not_finite(values, name)
    return pa.array(
        [None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values],
        pa.string(),
    )


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )
