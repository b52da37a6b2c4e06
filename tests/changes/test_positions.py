"""Positions of 128 bits."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.changes.positions import Positions, concat_positions

NUMBERS = st.lists(st.integers(0, 10**38 - 1) | st.sampled_from([2**63, 2**64, 2**64 - 1, 2**64 + 1]), min_size=1)


def positions(numbers: list[int]) -> Positions:
    return Positions.of(pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0)))


@given(NUMBERS, st.randoms())
def test_they_compare_as_the_numbers_that_they_are(numbers: list[int], chance):
    others = [chance.choice(numbers) for _ in numbers]
    mine, theirs = positions(numbers), positions(others)
    assert (mine > theirs).tolist() == [one > other for one, other in zip(numbers, others, strict=True)]
    assert mine.least() == min(numbers)
    assert [mine.at(n) for n in range(len(mine))] == numbers
    assert [int(value) for value in mine.to_arrow().to_pylist()] == numbers
    both = concat_positions([mine, Positions.same(numbers[0], 2)])
    assert [both.at(n) for n in range(len(both))] == [*numbers, numbers[0], numbers[0]]
    assert [mine[1:].at(n) for n in range(len(mine) - 1)] == numbers[1:]
