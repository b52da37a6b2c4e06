"""The protocol of decoders, and the rows that they decode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.values import ParsedValues

_MERGED_BYTES = 32 << 20  # bytes


@dataclass(frozen=True)
class DecodedRows:
    """Rows of several objects, in runs of rows of one object each."""

    rows: pa.RecordBatch  # the content's columns
    owners: np.ndarray  # the object of each run
    counts: np.ndarray  # the rows of each run
    numbers: np.ndarray | None = None  # of each row in its object; None: 1, 2, 3 … in each run

    @classmethod
    def of_one(cls, rows: pa.RecordBatch, numbers: np.ndarray | None = None) -> DecodedRows:
        """Of the first object, or of the only one."""
        return cls(rows, np.array([0]), np.array([rows.num_rows]), numbers)

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, owners: np.ndarray, numbers: np.ndarray) -> DecodedRows:
        """With the object and the number of each row."""
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        return cls(rows, owners[begins], np.diff(begins, append=len(owners)), numbers)

    def row_numbers(self) -> np.ndarray:
        if self.numbers is not None:
            return self.numbers
        firsts = np.cumsum(self.counts) - self.counts
        numbers: np.ndarray = np.arange(1, self.rows.num_rows + 1) - np.repeat(firsts, self.counts)
        return numbers


def merge_small(parts: Iterable[DecodedRows]) -> Iterator[DecodedRows]:
    """The same rows in few batches instead of one per object, without empty ones."""
    waiting: list[DecodedRows] = []
    size = 0
    for part in parts:
        if part.rows.num_rows:
            waiting.append(part)
            size += part.rows.nbytes
        if size > _MERGED_BYTES:
            yield _merged(waiting)
            waiting, size = [], 0
    if waiting:
        yield _merged(waiting)


def _merged(parts: Sequence[DecodedRows]) -> DecodedRows:
    if len(parts) == 1:
        return parts[0]
    return DecodedRows(
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.owners for part in parts]),
        np.concatenate([part.counts for part in parts]),
        np.concatenate([part.row_numbers() for part in parts]),
    )


@dataclass
class Decoded:
    """The result for several objects: their rows, rows that do not fit, and objects that failed."""

    parts: list[DecodedRows] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    failed: dict[int, ObjectFailed] = field(default_factory=dict)

    def add_parsed(
        self, parsed: ParsedValues, values: Sequence[bytes], locations: Sequence[tuple[int, int]]
    ) -> Decoded:
        """Add the rows and rejects of lines; a place is the object of a line, and its number there."""
        self.bad += [BadRow(*locations[index], reason, values[index]) for index, reason in parsed.rejected]
        accepted = np.delete(np.array(locations, np.int64), [index for index, _ in parsed.rejected], axis=0)
        begin = 0
        for rows in parsed.batches:
            self.parts.append(DecodedRows.of_rows(rows, *accepted[begin : begin + rows.num_rows].T))
            begin += rows.num_rows
        return self

    def shift_numbers(self, before: int) -> Decoded:
        """Add `before` to the row numbers: so many lines of the object were in earlier pieces."""
        if not before:
            return self
        parts = [replace(part, numbers=part.row_numbers() + before) for part in self.parts]
        return Decoded(parts, [replace(bad, number=bad.number + before) for bad in self.bad], self.failed)

    def with_owners(self, owners: Sequence[int]) -> Decoded:
        """Replace the indices of objects by these: the decoded objects are a subset."""
        known = np.array(owners, np.int64)
        parts = [replace(part, owners=known[part.owners]) for part in self.parts]
        bad = [replace(row, owner=owners[row.owner]) for row in self.bad]
        return Decoded(parts, bad, {owners[number]: failed for number, failed in self.failed.items()})


class Decoder(Protocol):
    """Decodes one format. Used by one thread."""

    def decode(self, contents: Sequence[Content]) -> Decoded:
        """Objects that fit into memory together."""

    def pieces(self, content: Content) -> Iterator[Decoded]:
        """One large object, piece by piece. Raises ObjectFailed at any piece: then no row of the object counts."""


def concat_decoded(pieces: Iterable[Decoded]) -> Decoded:
    """All pieces as one."""
    decoded = Decoded()
    for piece in pieces:
        decoded.parts += piece.parts
        decoded.bad += piece.bad
        decoded.failed.update(piece.failed)
    return decoded


def decode_one(decoder: Decoder, content: Content) -> Decoded:
    """One object that cannot be cut. Raises ObjectFailed."""
    decoded = decoder.decode([content])
    if decoded.failed:
        raise decoded.failed[0]
    return decoded


def decode_each(pieces: Callable[[Content], Iterator[Decoded]], contents: Sequence[Content]) -> Decoded:
    """`decode` for formats that gain nothing from decoding many objects together."""
    decoded = Decoded()
    for owner, content in enumerate(contents):
        try:
            decoded_pieces = list(pieces(content))
        except ObjectFailed as failed:
            decoded.failed[owner] = failed
            continue
        alone = concat_decoded(decoded_pieces).with_owners([owner])
        decoded.parts += alone.parts
        decoded.bad += alone.bad
    return decoded


@runtime_checkable
class LineDecoder(Protocol):
    """A format whose rows are lines, so that an object can be cut."""

    def lines(self, chunk: bytes) -> Decoded: ...


CHUNK = 8 << 20
_BOM = b"\xef\xbb\xbf"  # of UTF-8, which some editors write


def chunks(content: Content, size: int = CHUNK) -> Iterator[bytes]:
    """About `size` bytes each, in whole lines: a chunk ends after a newline, or with the content."""
    begin = 0
    while begin < len(content):
        end = len(content)
        if begin + size < end:
            end = content.rfind(b"\n", begin, begin + size) + 1 or content.find(b"\n", begin + size) + 1 or end
        yield content[begin:end]
        begin = end


def decode_chunks(content: Content, decode: Callable[[bytes], Decoded]) -> Iterator[Decoded]:
    """All lines of an object, chunk by chunk, with their numbers in the object."""
    before = 0
    for chunk in chunks(content):
        yield decode(chunk if before else strip_bom(chunk)).shift_numbers(before)
        before += chunk.count(b"\n")


def strip_bom(content: bytes) -> bytes:
    """Without the byte order mark."""
    return content.removeprefix(_BOM)
