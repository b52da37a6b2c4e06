"""Digests of rows: they recognise a row that was read before where rows carry no transaction ids (G6)."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headwater.model.rows import ExactBatch, OnReject, ReadsExactBatches, Split, exact_rows
from headwater.model.types import Column

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES = 8
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH_WALL = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of times that have no zone
_EPOCH_INSTANT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@runtime_checkable
class ReadsValues(Protocol):
    """A split that a poll reads without Arrow, whose import would take longer than the poll."""

    def read_values(self) -> Iterator[list[list[Any]]]:
        """The rows as Python values, in batches, column by column; a value that its type cannot hold, as text."""


@dataclass(frozen=True)
class DigestSplit:
    """The ranges of a window where digests decide; `inner` reads the rows with two flags.

    First flag: the row may have been read before, and was if the start's mark has its digest. Second flag: the row
    may be newer than the plan, and is unless the end's mark has its digest (G5).
    """

    inner: Split = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    start_digests: frozenset[str] = field(repr=False)
    end_digests: frozenset[str] = field(repr=False)
    rows: int | None = None

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        if isinstance(self.inner, ReadsExactBatches):
            return exact_rows(self._exact_batches(self.inner), self.inner.identity, on_reject)
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        digests = RowDigests()
        for batch in self.inner.read():
            new = self._new_rows(digests, _values(batch))
            if any(new):
                yield batch.select(range(len(self.columns))).filter(new)

    def _exact_batches(self, inner: ReadsExactBatches) -> Iterator[ExactBatch]:
        digests = RowDigests()
        for batch in inner.read_exact():
            rows = batch.select(self._new_rows(digests, _values_and_texts(batch)))
            yield replace(rows, batch=rows.batch.select(range(len(self.columns))))

    def _new_rows(self, digests: RowDigests, columns: Sequence[Sequence[Any]]) -> list[bool]:
        *values, start_flags, end_flags = columns
        return [
            not (in_start and digest in self.start_digests) and not (in_end and digest not in self.end_digests)
            for digest, in_start, in_end in zip(digests.of(values), start_flags, end_flags, strict=True)
        ]


def flagged_digests(split: Split) -> Iterator[tuple[list[str], list[int], list[int]]]:
    """The digests of the rows of a flagged read, and the two flags."""
    digests = RowDigests()
    if isinstance(split, ReadsValues):
        batches = split.read_values()
    else:
        batches = (
            map(_values_and_texts, split.read_exact())
            if isinstance(split, ReadsExactBatches)
            else map(_values, split.read())
        )
    for *values, start_flags, end_flags in batches:
        yield digests.of(values), start_flags, end_flags


def _values_and_texts(batch: ExactBatch) -> list[list[Any]]:
    """The values of a batch, and texts for those that it cannot hold: such rows have digests, too."""
    values = _values(batch.batch)
    for inexact in batch.inexact:
        for row, text in inexact.texts.items():
            values[inexact.position][row] = text
    return values


def _values(batch: pa.RecordBatch) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.columns]


class RowDigests:
    """Digests of the rows of one read. Equal rows get different digests: a count is appended."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def of(self, columns: Sequence[Sequence[object]]) -> list[str]:
        digests = []
        for row in zip(*(map(canonical, values) for values in columns), strict=True):
            digest = hashlib.blake2b(_pack(row), digest_size=_BYTES).hexdigest()
            repeats = self._counts[digest]
            self._counts[digest] += 1
            digests.append(f"{digest}#{repeats}" if repeats else digest)
        return digests


def canonical(value: object) -> bytes | None:
    """A value as bytes that no other value of its type has, whichever library read it."""
    match value:
        case None | bytes():
            return value
        case float():
            return value.hex().encode()
        case dt.datetime():
            since = value - (_EPOCH_WALL if value.tzinfo is None else _EPOCH_INSTANT)
            return b"%d" % (since // dt.timedelta(microseconds=1))
        case dt.date():
            return b"%d" % (value - _EPOCH_DAY).days
        case decimal.Decimal():
            return str(value or abs(value)).encode()  # Arrow has no negative zero
        case _:
            return str(value).encode()


def _pack(row: Iterable[bytes | None]) -> bytes:
    return b"".join(b"-" if value is None else b"%d:%s" % (len(value), value) for value in row)
