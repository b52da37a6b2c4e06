"""What a format makes of the contents of objects, and what a format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed


@dataclass(frozen=True)
class Part:
    """Rows of some of the objects, object after object."""

    rows: pa.RecordBatch  # the content's columns
    counts: np.ndarray  # rows of each object
    numbers: np.ndarray | None = None  # of each row in its object; None: 1, 2, 3 … in each

    def row_numbers(self) -> np.ndarray:
        if self.numbers is not None:
            return self.numbers
        firsts = np.cumsum(self.counts) - self.counts
        numbers: np.ndarray = np.arange(1, self.rows.num_rows + 1) - np.repeat(firsts, self.counts)
        return numbers


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
        parts = [Part(part.rows, part.counts, part.row_numbers() + before) for part in self.parts]
        return Decoded(parts, [replace(bad, number=bad.number + before) for bad in self.bad], self.failed)

    def of(self, owners: Sequence[int], objects: int) -> Decoded:
        """The same, where these objects are some of more."""
        parts = []
        for part in self.parts:
            counts = np.zeros(objects, np.int64)
            counts[list(owners)] = part.counts
            parts.append(Part(part.rows, counts, part.numbers))
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
        for piece in found:
            made.parts += [
                Part(part.rows, _of(owner, part.rows.num_rows, len(contents)), part.numbers) for part in piece.parts
            ]
            made.bad += [replace(bad, owner=owner) for bad in piece.bad]
    return made


def _of(owner: int, count: int, objects: int) -> np.ndarray:
    counts = np.zeros(objects, np.int64)
    counts[owner] = count
    return counts


@runtime_checkable
class DecodesLines(Protocol):
    """A format whose rows are lines, so that an object can be cut."""

    def lines(self, chunk: bytes) -> Decoded: ...
