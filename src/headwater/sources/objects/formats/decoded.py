"""What a format makes of the contents of objects, and what a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed

_GATHERED = 32 << 20  # bytes


@dataclass(frozen=True)
class Part:
    """Rows of some of the objects, in runs of rows of one object each."""

    rows: pa.RecordBatch  # the content's columns
    owners: np.ndarray  # the object of each run
    counts: np.ndarray  # the rows of each run
    numbers: np.ndarray | None = None  # of each row in its object; None: 1, 2, 3 … in each run

    @classmethod
    def of_one(cls, rows: pa.RecordBatch, numbers: np.ndarray | None = None) -> Part:
        """Of the first object, or of the only one."""
        return cls(rows, np.array([0]), np.array([rows.num_rows]), numbers)

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, owners: np.ndarray, numbers: np.ndarray) -> Part:
        """With the object and the number of each row."""
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        return cls(rows, owners[begins], np.diff(begins, append=len(owners)), numbers)

    def row_numbers(self) -> np.ndarray:
        if self.numbers is not None:
            return self.numbers
        firsts = np.cumsum(self.counts) - self.counts
        numbers: np.ndarray = np.arange(1, self.rows.num_rows + 1) - np.repeat(firsts, self.counts)
        return numbers


def gathered(parts: Iterable[Part]) -> Iterator[Part]:
    """The same rows in few parts: one per object would be many small batches. Parts without rows are left out."""
    waiting: list[Part] = []
    size = 0
    for part in parts:
        if part.rows.num_rows:
            waiting.append(part)
            size += part.rows.nbytes
        if size > _GATHERED:
            yield _merged(waiting)
            waiting, size = [], 0
    if waiting:
        yield _merged(waiting)


def _merged(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return Part(
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.owners for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.row_numbers() for part in parts]),
    )


@dataclass
class Decoded:
    """Of several objects: their rows, rows that have no place, and objects that bring none at all."""

    parts: list[Part] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    failed: dict[int, ObjectFailed] = field(default_factory=dict)

    def later(self, before: int) -> Decoded:
        """The same of one object whose first `before` lines came in earlier pieces."""
        if not before:
            return self
        parts = [replace(part, numbers=part.row_numbers() + before) for part in self.parts]
        return Decoded(parts, [replace(bad, number=bad.number + before) for bad in self.bad], self.failed)

    def of(self, owners: Sequence[int]) -> Decoded:
        """The same, where these objects are some of more."""
        known = np.array(owners, np.int64)
        parts = [replace(part, owners=known[part.owners]) for part in self.parts]
        bad = [replace(row, owner=owners[row.owner]) for row in self.bad]
        return Decoded(parts, bad, {owners[number]: failed for number, failed in self.failed.items()})


class Decoder(Protocol):
    """Makes columns of one format, from one thread."""

    def decode(self, contents: Sequence[Content]) -> Decoded:
        """Objects that fit into memory together."""

    def pieces(self, content: Content) -> Iterator[Decoded]:
        """One large object, piece after piece. Raises ObjectFailed at any of them: none of its rows counts then."""


def joined(pieces: Iterable[Decoded]) -> Decoded:
    """All of it."""
    made = Decoded()
    for piece in pieces:
        made.parts += piece.parts
        made.bad += piece.bad
        made.failed.update(piece.failed)
    return made


def one_by_one(pieces: Callable[[Content], Iterator[Decoded]], contents: Sequence[Content]) -> Decoded:
    """`decode` of a format that has no use for many objects at once."""
    made = Decoded()
    for owner, content in enumerate(contents):
        try:
            found = list(pieces(content))
        except ObjectFailed as failed:
            made.failed[owner] = failed
            continue
        alone = joined(found).of([owner])
        made.parts += alone.parts
        made.bad += alone.bad
    return made


@runtime_checkable
class DecodesLines(Protocol):
    """A format whose rows are lines, so that an object can be cut."""

    def lines(self, chunk: bytes) -> Decoded: ...
