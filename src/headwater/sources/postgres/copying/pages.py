"""The pages of a table's heaps, and how those between two of them are cut into parts of similar size.

A page is known by one number: which heap, and its own there. Heaps grow while they are copied, so pages are not counted
on from one heap to the next. The last part of a heap has no end: what is added behind the plan is not in the snapshot,
and costs no more than a look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.sources.postgres.catalog import Leaf

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
    """As many of its pages as there is room for, and the rest of them. A part of a page is none."""
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
