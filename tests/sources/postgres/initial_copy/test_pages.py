"""Pages of heaps, cut into windows and splits: each belongs to exactly one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.sources.postgres.catalog import Leaf
from headwater.sources.postgres.initial_copy.pages import cut_pages, split_ranges

PAGE = 8192
LEAVES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=8).map(
    lambda sizes: [leaf(number, pages, toast) for number, (pages, toast) in enumerate(sizes)]
)


def leaf(number: int, pages: int, share: int = 1) -> Leaf:
    """`share`: bytes of a page and what is kept out of line for it, in pages."""
    return Leaf(number + 100, "s", f"t{number}", pages, pages * 10, size=pages * share * PAGE)


def windows(leaves: list[Leaf], budget: int) -> list[tuple[int, int | None]]:
    ranges, first = [], 0
    while first is not None:
        end, _ = cut_pages(leaves, first, budget)
        ranges.append((first, end))
        first = end
    return ranges


@given(LEAVES, st.integers(1, 100 * PAGE), st.integers(1, 9), st.integers(0, 50))
def test_every_page_is_in_one_window_and_in_one_split_even_those_that_were_added(leaves, budget, parts, growth):
    read = [
        (heap.number, page)
        for first, end in windows(leaves, budget)
        for ranges in split_ranges(leaves, first, end, parts)
        for heap in ranges
        for page in range(heap.first, leaves[heap.number].pages + growth if heap.end is None else heap.end)
    ]
    assert sorted(read) == [(number, page) for number, one in enumerate(leaves) for page in range(one.pages + growth)]


@given(LEAVES, st.integers(1, 9))
def test_splits_hold_about_as_much_as_each_other(leaves, parts):
    cut = split_ranges(leaves, 0, None, parts)
    assert len(cut) <= parts
    sizes = [sum(size_of(leaves, heap) for heap in ranges) for ranges in cut]
    largest_page = max(one.size // one.pages if one.pages else 0 for one in leaves)
    assert max(sizes) <= sum(sizes) / parts + 2 * largest_page


def size_of(leaves: list[Leaf], heap) -> int:
    one = leaves[heap.number]
    pages = (one.pages if heap.end is None else heap.end) - heap.first
    return pages * (one.size // one.pages) if one.pages else 0


@given(LEAVES, st.integers(1, 100 * PAGE))
def test_a_window_takes_what_it_may_and_one_page_at_least(leaves, budget):
    for first, _ in windows(leaves, budget):
        end, cost = cut_pages(leaves, first, budget)
        assert end is None or end > first
        assert cost <= max(budget, 40 * PAGE)


def test_what_is_kept_out_of_line_counts():
    assert cut_pages([leaf(0, 100)], 0, 50 * PAGE) == (50, 50 * PAGE)
    assert cut_pages([leaf(0, 100, share=10)], 0, 50 * PAGE) == (5, 50 * PAGE)
    assert cut_pages([leaf(0, 100), leaf(1, 100)], 0, 150 * PAGE) == (1 << 32 | 50, 150 * PAGE)
    assert cut_pages([leaf(0, 100), leaf(1, 100)], 1 << 32 | 50, 50 * PAGE) == (None, 50 * PAGE)


def test_rows_that_the_server_has_not_counted_are_not_known():
    uncounted = Leaf(1, "s", "t", 10, 0)
    assert [heap.rows for (heap,) in split_ranges([uncounted], 0, None, 2)] == [None, None]
    assert [heap.rows for (heap,) in split_ranges([leaf(0, 10)], 0, None, 2)] == [50, 50]
    assert [heap.rows for (heap,) in split_ranges([Leaf(1, "s", "t", 0, 0)], 0, None, 2)] == [0]
