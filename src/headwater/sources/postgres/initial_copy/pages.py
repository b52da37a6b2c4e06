"""The pages of a table's heaps: cut into ranges of similar size, and the SQL text that copies a range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg import sql

from headwater.model.errors import RunError
from headwater.pg.copy.stream import Chunk
from headwater.sources.postgres.catalog import Leaf

# One number identifies a page: the heap's and its own there. Heaps grow during a copy, so the numbers of one heap do not
# continue those of another. The last range of a heap has no end: pages that were added after the plan have no row of the
# snapshot, and cost little.

_PAGE_BITS = 32  # as in PostgreSQL
_PAGE_BYTES = 8192


@dataclass(frozen=True)
class HeapRange:
    """Pages of one heap."""

    number: int  # of the heap among those of its table
    oid: int
    schema: str
    name: str
    first: int
    end: int | None  # None: to the end
    rows: int | None  # an estimate; None: the server has none yet


def cut_pages(leaves: Sequence[Leaf], first: int, budget_bytes: int) -> tuple[int | None, int]:
    """The page before which a window of about so many bytes from `first` on ends, and its bytes.

    None: it reaches the end of the table. TOAST counts, spread evenly over its heap's pages.
    """
    cost = 0
    for number, leaf, page in _heaps(leaves, first):
        page_bytes = _page_bytes(leaf)
        remaining = max(leaf.pages - page, 0)
        room = (budget_bytes - cost) // page_bytes
        if room < remaining:
            pages = room if cost or room else 1  # a window without a page would never end
            return number << _PAGE_BITS | (page + pages), cost + pages * page_bytes
        cost += remaining * page_bytes
    return None, cost


def split_ranges(leaves: Sequence[Leaf], first: int, end: int | None, count: int) -> list[tuple[HeapRange, ...]]:
    """The pages between two in at most `count` parts of about equal bytes."""
    ranges = list(_between(leaves, first, end))
    total = sum(_bytes(leaves[heap.number], heap) for heap in ranges)
    parts: list[list[HeapRange]] = [[]]
    filled = 0  # bytes in all parts
    for heap in ranges:
        rest: HeapRange | None = heap
        while rest is not None:
            room = -(-total * len(parts) // count) - filled
            piece, rest = _cut(leaves[rest.number], rest, room) if len(parts) < count else (rest, None)
            if piece is not None:
                parts[-1].append(piece)
                filled += _bytes(leaves[piece.number], piece)
            if rest is not None:
                parts.append([])
    return [tuple(part) for part in parts if part]


def _heaps(leaves: Sequence[Leaf], first: int) -> Iterator[tuple[int, Leaf, int]]:
    """Every heap from a page on: its number, itself, and its first page that counts."""
    at, page = divmod(first, 1 << _PAGE_BITS)
    for number, leaf in enumerate(leaves[at:], at):
        yield number, leaf, page if number == at else 0


def _between(leaves: Sequence[Leaf], first: int, end: int | None) -> Iterator[HeapRange]:
    last, stop = divmod(end, 1 << _PAGE_BITS) if end is not None else (len(leaves), 0)
    for number, leaf, page in _heaps(leaves, first):
        if number > last or (number == last and stop <= page):
            return
        until = stop if number == last else None
        yield _range(leaf, number, page, until)


def _cut(leaf: Leaf, heap: HeapRange, room: int) -> tuple[HeapRange | None, HeapRange | None]:
    """The pages that fit into so many bytes, and the rest."""
    pages = -(-room // _page_bytes(leaf)) if room > 0 else 0
    if pages >= _pages(leaf, heap):
        return heap, None
    if pages == 0:
        return None, heap
    middle = heap.first + pages
    return _range(leaf, heap.number, heap.first, middle), _range(leaf, heap.number, middle, heap.end)


def _range(leaf: Leaf, number: int, first: int, end: int | None) -> HeapRange:
    pages = max((leaf.pages if end is None else end) - first, 0)
    estimate = leaf.rows * pages // leaf.pages if leaf.pages else 0
    rows = estimate if leaf.rows or not leaf.pages else None
    return HeapRange(number, leaf.oid, leaf.schema, leaf.name, first, end, rows)


def _pages(leaf: Leaf, heap: HeapRange) -> int:
    return max((leaf.pages if heap.end is None else heap.end) - heap.first, 0)


def _bytes(leaf: Leaf, heap: HeapRange) -> int:
    return _pages(leaf, heap) * _page_bytes(leaf)


def _page_bytes(leaf: Leaf) -> int:
    return max(_PAGE_BYTES, leaf.size // leaf.pages) if leaf.pages else _PAGE_BYTES


# Text of a copy is the text of the WAL: the result of the type's output function.

# Types whose binary form is their text: name, text, json, char(n) with its padding, varchar.
_SENT_AS_TEXT = frozenset({19, 25, 114, 1042, 1043})
_TEXT = "string"

Ctid = tuple[int, int]
"""A row's page, and its number there."""


@dataclass(frozen=True)
class CopiedColumn:
    """A column as the copy reads it: in its type, or as text."""

    name: str
    column_type: str  # of `model/types.py`
    type: int  # oid
    declared: str = ""  # the server's name of the type, for messages

    @property
    def expression(self) -> str:
        """As text by the output function; a cast is another function for bool, char(n), inet, "char" or xml.

        `concat` calls the output function, but makes an empty text of NULL; and a composite of NULLs IS NULL.
        """
        name = identifier(self.name)
        if self.column_type != _TEXT or self.type in _SENT_AS_TEXT:
            return name
        return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.concat({name}) END"


def copy_query(columns: Sequence[CopiedColumn], heap: HeapRange, where: str, after: Ctid | None) -> str:
    """The values of each row, then its ctid; in the order of ctids, from the heap's first page or after a ctid.

    A ctid in front, with the next field's width, would often look like the head of a row (`pg/copy/stream.py`).
    """
    expressions = ", ".join([*(column.expression for column in columns), "ctid"])
    low = f"ctid > '({after[0]},{after[1]})'::tid" if after else f"ctid >= '({heap.first},0)'::tid"
    high = f" AND ctid < '({heap.end},0)'::tid" if heap.end is not None else ""
    # The condition is the user's SQL: on its own lines, so that a comment in it ends there.
    condition = f" AND (\n{where}\n)" if where else ""
    return f"SELECT {expressions} FROM ONLY {heap_name(heap)} WHERE {low}{high}{condition}"  # noqa: S608 - names are quoted


def describe_query(columns: Sequence[CopiedColumn], heap: HeapRange) -> str:
    """A result without rows, for the current names and types. Its transaction holds the table's lock."""
    expressions = ", ".join(["ctid", *(identifier(column.name) for column in columns)])
    return f"SELECT {expressions} FROM ONLY {heap_name(heap)} LIMIT 0"  # noqa: S608 - names are quoted


def heap_name(heap: HeapRange) -> str:
    return f"{identifier(heap.schema)}.{identifier(heap.name)}"


def identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


Numbers = np.ndarray[Any, Any]

_FIELD = np.dtype([("length", ">i4"), ("page", ">u4"), ("item", ">u2")])
_LENGTH = 6
_ITEM_BITS, _HEAP_BITS = 16, 48


def ctids_of(chunk: Chunk) -> Numbers:
    """The ctid of each row, its last field, as one number."""
    data = np.frombuffer(chunk.data, np.uint8)
    every = np.ndarray((len(data) - _FIELD.itemsize + 1,), f"V{_FIELD.itemsize}", data.data, strides=(1,))
    fields = every[values_end(chunk)].view(_FIELD)
    if not np.all(fields["length"] == _LENGTH):
        raise RunError("the server's COPY sent something else in place of a ctid")
    ctids: Numbers = fields["page"].astype(np.int64) << _ITEM_BITS | fields["item"]
    return ctids


def values_end(chunk: Chunk) -> Numbers:
    """Where the ctid begins, after the values of each row."""
    end: Numbers = chunk.ends - _FIELD.itemsize
    return end


def is_ascending(ctids: Numbers, after: Ctid | None) -> bool:
    """True if each is above the one before. If not, a read that continues after the last would lose rows."""
    before = -1 if after is None else after[0] << _ITEM_BITS | after[1]
    return bool(np.all(np.diff(ctids, prepend=before) > 0))


def ctid_of(number: int) -> Ctid:
    return number >> _ITEM_BITS, number & (1 << _ITEM_BITS) - 1


def row_numbers(ctids: Numbers, heap: int) -> Numbers:
    """Numbers that are unique among all heaps of a table."""
    numbers: Numbers = ctids + (heap << _HEAP_BITS)
    return numbers
