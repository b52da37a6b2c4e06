"""Digests of rows: how a row that was already read is known again where no transaction numbers exist (G6)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.model.rows import Split
from headwater.sources.sql.relation import Column

_BYTES = 8


@dataclass(frozen=True)
class EdgeSplit:
    """The stretches of a window where digests decide; `inner` gives the rows with two flags.

    First flag: the row may have been read before, and was if its digest is in `known`. Second flag: the row
    may have come after the plan, and did unless its digest is in `kept` (G5).
    """

    inner: Split = field(repr=False)
    columns: tuple[Column, ...] = field(repr=False)
    known: frozenset[str] = field(repr=False)
    kept: frozenset[str] = field(repr=False)
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        for batch, names, before, after in flagged_rows(self.inner, self.columns):
            wanted = [
                not (low and name in self.known) and not (high and name not in self.kept)
                for name, low, high in zip(names, before, after, strict=True)
            ]
            if any(wanted):
                rows = batch.select(range(len(self.columns)))
                yield rows if all(wanted) else rows.filter(pa.array(wanted))


def flagged_rows(
    split: Split, columns: Sequence[Column]
) -> Iterator[tuple[pa.RecordBatch, list[str], list[int], list[int]]]:
    """The batches of a flagged read with the names of their rows and the two flags."""
    digests = RowDigests()
    for batch in split.read():
        first, second = len(columns), len(columns) + 1
        yield batch, digests.of(batch, columns), batch.column(first).to_pylist(), batch.column(second).to_pylist()


class RowDigests:
    """Names the rows of a read one by one. Rows that are alike get different names, by counting them."""

    def __init__(self) -> None:
        self._alike: Counter[str] = Counter()

    def of(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> list[str]:
        names = []
        for row in zip(*(_canonical(batch.column(number)) for number in range(len(columns))), strict=True):
            digest = hashlib.blake2b(_packed(row), digest_size=_BYTES).hexdigest()
            repeated = self._alike[digest]
            self._alike[digest] += 1
            names.append(f"{digest}#{repeated}" if repeated else digest)
        return names


def _canonical(array: pa.Array) -> Iterator[bytes | None]:
    """Each value as bytes that no other value of its type has, whatever library version made them."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    elif pa.types.is_date(kind):
        array = array.view(pa.int32())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    for value in array.to_pylist():
        if value is None or isinstance(value, bytes):
            yield value
        elif isinstance(value, float):
            yield value.hex().encode()
        else:
            yield str(value).encode()


def _packed(row: Iterable[bytes | None]) -> bytes:
    return b"".join(b"-" if value is None else b"%d:%s" % (len(value), value) for value in row)
