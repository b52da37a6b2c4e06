"""Numbers in order, each once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.changes.positions import sorted_distinct

NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2))


@given(NUMBERS, NUMBERS)
def test_all_are_there_once_and_in_order(some: list[int], others: list[int]):
    first, second = np.array(some, np.int64), np.array(others, np.int64)
    assert sorted_distinct(first).tolist() == sorted(set(some))
    assert sorted_distinct(first, second).tolist() == sorted({*some, *others})
