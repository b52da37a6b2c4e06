"""Digests of rows: how a row that was already read is known again where no transaction numbers exist (G6)."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headwater.model.rejects import SetAside
from headwater.model.rows import Split
from headwater.sources.sql.relation import Column
from headwater.sources.sql.unkept import Part, ReadsParts, kept_rows, kept_whole

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES = 8
_DAY_ONE = dt.date(1970, 1, 1)
_WALL_ONE = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of times that have no zone
_INSTANT_ONE = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@runtime_checkable
class ReadsValues(Protocol):
    """A split that can be read without Arrow, which takes a poll longer to import than all the rest."""

    def read_values(self) -> Iterator[list[list[Any]]]:
        """The rows as Python values, some rows at a time, column by column; what is not kept, as its text."""


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
        if isinstance(self.inner, ReadsParts):
            return kept_whole(self._parts(self.inner), self.inner.names)
        return self._batches()

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        if isinstance(self.inner, ReadsParts):
            return kept_rows(self._parts(self.inner), self.inner.names, set_aside)
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        digests = RowDigests()
        for batch in self.inner.read():
            wanted = self._wanted(digests, _values(batch))
            if any(wanted):
                yield batch.select(range(len(self.columns))).filter(wanted)

    def _parts(self, inner: ReadsParts) -> Iterator[Part]:
        digests = RowDigests()
        for part in inner.read_parts():
            rows = part.of(self._wanted(digests, _overlaid(part)))
            yield replace(rows, batch=rows.batch.select(range(len(self.columns))))

    def _wanted(self, digests: RowDigests, columns: Sequence[Sequence[Any]]) -> list[bool]:
        *values, before, after = columns
        return [
            not (low and name in self.known) and not (high and name not in self.kept)
            for name, low, high in zip(digests.of(values), before, after, strict=True)
        ]


def flagged_names(split: Split) -> Iterator[tuple[list[str], list[int], list[int]]]:
    """The names of the rows of a flagged read, and the two flags."""
    digests = RowDigests()
    if isinstance(split, ReadsValues):
        parts = split.read_values()
    else:
        parts = map(_overlaid, split.read_parts()) if isinstance(split, ReadsParts) else map(_values, split.read())
    for *values, before, after in parts:
        yield digests.of(values), before, after


def _overlaid(part: Part) -> list[list[Any]]:
    """The values of a part, and the texts of those that it could not keep: such rows have names, too."""
    values = _values(part.batch)
    for one in part.unkept:
        for row, text in one.texts.items():
            values[one.position][row] = text
    return values


def _values(batch: pa.RecordBatch) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.columns]


class RowDigests:
    """Names the rows of a read one by one. Rows that are alike get different names, by counting them."""

    def __init__(self) -> None:
        self._alike: Counter[str] = Counter()

    def of(self, columns: Sequence[Sequence[object]]) -> list[str]:
        names = []
        for row in zip(*(map(canonical, values) for values in columns), strict=True):
            digest = hashlib.blake2b(_packed(row), digest_size=_BYTES).hexdigest()
            repeated = self._alike[digest]
            self._alike[digest] += 1
            names.append(f"{digest}#{repeated}" if repeated else digest)
        return names


def canonical(value: object) -> bytes | None:
    """A value as bytes that no other value of its type has, whatever library, in whatever version, read it."""
    match value:
        case None | bytes():
            return value
        case float():
            return value.hex().encode()
        case dt.datetime():
            since = value - (_WALL_ONE if value.tzinfo is None else _INSTANT_ONE)
            return b"%d" % (since // dt.timedelta(microseconds=1))
        case dt.date():
            return b"%d" % (value - _DAY_ONE).days
        case decimal.Decimal():
            return str(value or abs(value)).encode()  # there is one zero: Arrow does not know the negative one
        case _:
            return str(value).encode()


def _packed(row: Iterable[bytes | None]) -> bytes:
    return b"".join(b"-" if value is None else b"%d:%s" % (len(value), value) for value in row)
