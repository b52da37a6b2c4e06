"""The pages of a table's heaps: how they are cut into parts of similar size, and the SQL text that copies a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg import sql

from headwater.model.errors import RunError
from headwater.pg.copy.stream import Chunk
from headwater.sources.postgres.catalog import Leaf

# A page is known by one number: which heap, and its own there. Heaps grow while they are copied, so pages are not counted
# on from one heap to the next. The last part of a heap has no end: what is added behind the plan is not in the snapshot,
# and costs no more than a look.

_PAGE_BITS = 32  # PostgreSQL's own number of a page has as many
_PAGE_BYTES = 8192


@dataclass(frozen=True)
class HeapRange:
    """Pages of one heap."""

    number: int  # of the heap among those of its table
    oid: int
    schema: str
    name: str
    first: int
    end: int | None  # None: all that there are
    rows: int | None  # about so many; None: the server has not counted yet


def cut_pages(leaves: Sequence[Leaf], first: int, budget_bytes: int) -> tuple[int | None, int]:
    """The page before which a window ends that reads about so many bytes from `first` on, and how many they are.

    None: it reaches the end of the table. What is kept out of line counts, spread evenly over its heap's pages.
    """
    cost = 0
    for number, leaf, page in _heaps(leaves, first):
        each = _page_bytes(leaf)
        left = max(leaf.pages - page, 0)
        room = (budget_bytes - cost) // each
        if room < left:
            taken = room if cost or room else 1  # a window without a page would never come to an end
            return _page(number, page + taken), cost + taken * each
        cost += left * each
    return None, cost


def split_ranges(leaves: Sequence[Leaf], first: int, end: int | None, parts: int) -> list[tuple[HeapRange, ...]]:
    """The pages from one up to another in at most so many parts, which hold about as many bytes each."""
    ranges = list(_between(leaves, first, end))
    total = sum(_bytes(leaves[one.number], one) for one in ranges)
    cut: list[list[HeapRange]] = [[]]
    done = 0  # bytes in all of the parts
    for whole in ranges:
        rest: HeapRange | None = whole
        while rest is not None:
            room = -(-total * len(cut) // parts) - done
            piece, rest = _cut(leaves[rest.number], rest, room) if len(cut) < parts else (rest, None)
            if piece is not None:
                cut[-1].append(piece)
                done += _bytes(leaves[piece.number], piece)
            if rest is not None:
                cut.append([])
    return [tuple(part) for part in cut if part]


def _heaps(leaves: Sequence[Leaf], first: int) -> Iterator[tuple[int, Leaf, int]]:
    """Every heap from a page on: its number, itself, and the first of its pages that counts."""
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


def _cut(leaf: Leaf, whole: HeapRange, room: int) -> tuple[HeapRange | None, HeapRange | None]:
    """As many of its whole pages as there is room for, and the rest of them."""
    pages = -(-room // _page_bytes(leaf)) if room > 0 else 0
    if pages >= _pages(leaf, whole):
        return whole, None
    if pages == 0:
        return None, whole
    middle = whole.first + pages
    return _range(leaf, whole.number, whole.first, middle), _range(leaf, whole.number, middle, whole.end)


def _range(leaf: Leaf, number: int, first: int, end: int | None) -> HeapRange:
    pages = max((leaf.pages if end is None else end) - first, 0)
    counted = leaf.rows * pages // leaf.pages if leaf.pages else 0
    rows = counted if leaf.rows or not leaf.pages else None
    return HeapRange(number, leaf.oid, leaf.schema, leaf.name, first, end, rows)


def _pages(leaf: Leaf, one: HeapRange) -> int:
    return max((leaf.pages if one.end is None else one.end) - one.first, 0)


def _bytes(leaf: Leaf, one: HeapRange) -> int:
    return _pages(leaf, one) * _page_bytes(leaf)


def _page_bytes(leaf: Leaf) -> int:
    return max(_PAGE_BYTES, leaf.size // leaf.pages) if leaf.pages else _PAGE_BYTES


def _page(number: int, page: int) -> int:
    return number << _PAGE_BITS | page


# the WAL has: what the type's output function makes.

# Types whose binary form is their text: name, text, json, char(n) with its padding, varchar.
_SENT_AS_TEXT = frozenset({19, 25, 114, 1042, 1043})
_TEXT = "string"

Item = tuple[int, int]
"""A row's page, and its number there: its ctid."""


@dataclass(frozen=True)
class CopiedColumn:
    """A column as it is read: by its kind, or as text."""

    name: str
    kind: str  # of `model/types.py`
    type: int  # oid
    declared: str = ""  # the server's name of the type, for messages

    @property
    def expression(self) -> str:
        """As text: not by a cast, which is another function for bool, char(n), inet, "char" or xml.

        `concat` calls the output function, but makes an empty text of NULL; and a composite of NULLs IS NULL.
        """
        name = identifier(self.name)
        if self.kind != _TEXT or self.type in _SENT_AS_TEXT:
            return name
        return f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.concat({name}) END"


def copy_query(columns: Sequence[CopiedColumn], heap: HeapRange, where: str, behind: Item | None) -> str:
    """The values of each row, then its place; in the order of places, and only those behind one that is done.

    A place in front, with the next field's width, would often look like the head of a row (`pg/copy/stream.py`).
    """
    chosen = ", ".join([*(column.expression for column in columns), "ctid"])
    low = f"ctid > '({behind[0]},{behind[1]})'::tid" if behind else f"ctid >= '({heap.first},0)'::tid"
    high = f" AND ctid < '({heap.end},0)'::tid" if heap.end is not None else ""
    # The condition is the user's own SQL: on lines of its own, so that a comment in it ends there.
    more = f" AND (\n{where}\n)" if where else ""
    return f"SELECT {chosen} FROM ONLY {heap_name(heap)} WHERE {low}{high}{more}"  # noqa: S608 - names are quoted


def describe_query(columns: Sequence[CopiedColumn], heap: HeapRange) -> str:
    """No rows: the names and types as they are now. The transaction that runs it holds the table's lock."""
    chosen = ", ".join(["ctid", *(identifier(column.name) for column in columns)])
    return f"SELECT {chosen} FROM ONLY {heap_name(heap)} LIMIT 0"  # noqa: S608 - names are quoted


def heap_name(heap: HeapRange) -> str:
    return f"{identifier(heap.schema)}.{identifier(heap.name)}"


def identifier(name: str) -> str:
    return sql.Identifier(name).as_string()


Numbers = np.ndarray[Any, Any]

_FIELD = np.dtype([("length", ">i4"), ("page", ">u4"), ("item", ">u2")])
_LENGTH = 6
_ITEM_BITS, _HEAP_BITS = 16, 48


def places_of(chunk: Chunk) -> Numbers:
    """Of each row, by its last field; they order as page and item do."""
    data = np.frombuffer(chunk.data, np.uint8)
    every = np.ndarray((len(data) - _FIELD.itemsize + 1,), f"V{_FIELD.itemsize}", data.data, strides=(1,))
    found = every[values_end(chunk)].view(_FIELD)
    if not np.all(found["length"] == _LENGTH):
        raise RunError("the server's COPY sent something else where the place of a row stands")
    places: Numbers = found["page"].astype(np.int64) << _ITEM_BITS | found["item"]
    return places


def values_end(chunk: Chunk) -> Numbers:
    """Where the place begins, behind the values of each row."""
    end: Numbers = chunk.ends - _FIELD.itemsize
    return end


def in_order(places: Numbers, behind: Item | None) -> bool:
    """Whether each lies behind the one before. If not, a read that continues behind the last would lose rows."""
    before = -1 if behind is None else behind[0] << _ITEM_BITS | behind[1]
    return bool(np.all(np.diff(places, prepend=before) > 0))


def item_of(place: int) -> Item:
    return place >> _ITEM_BITS, place & (1 << _ITEM_BITS) - 1


def numbered(places: Numbers, heap: int) -> Numbers:
    """The same among all heaps of a table."""
    found: Numbers = places + (heap << _HEAP_BITS)
    return found
