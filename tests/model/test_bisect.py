"""A batch is converted in as few parts as its bad items allow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.bisect import bisect

BATCHES = st.lists(st.integers(0, 9), max_size=80)


def upper_half(items: list[int]) -> list[int] | None:
    return None if any(item > 4 for item in items) else items


@given(BATCHES, st.integers(1, 20), st.booleans())
def test_every_item_is_in_one_part_and_only_parts_with_a_bad_item_are_refused(batch, smallest, known):
    def first_bad(items):
        return next(index for index, item in enumerate(items) if item > 4)

    parts = list(bisect(batch, upper_half, smallest=smallest, bad_item=first_bad if known else None))
    assert [item for part in parts for item in part.items] == batch
    assert all(batch[part.begin : part.begin + len(part.items)] == part.items for part in parts)
    for part in parts:
        assert (part.result is None) == (upper_half(part.items) is None)
        assert part.result is not None or len(part.items) <= smallest


def test_an_error_refuses_a_part_and_is_part_of_it():
    parts = list(bisect(pa.array(["1", "x", "3"]), lambda texts: texts.cast(pa.int64()), pa.ArrowInvalid))
    assert [(part.begin, part.result and part.result.to_pylist()) for part in parts] == [(0, [1]), (1, None), (2, [3])]
    assert "'x'" in str(parts[1].error)


def test_other_errors_are_not_caught():
    with pytest.raises(ZeroDivisionError):
        list(bisect([1, 0], lambda items: [1 / item for item in items], ValueError))


def test_one_bad_item_of_many_costs_a_few_calls():
    calls = []
    list(bisect([0] * 1_000 + [9], lambda items: calls.append(items) or upper_half(items)))
    assert len(calls) < 25


def test_every_item_may_be_bad():
    assert len(list(bisect(range(5_000), lambda _: None, bad_item=lambda _: 0))) == 5_000
