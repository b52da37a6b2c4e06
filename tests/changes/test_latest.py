"""The changes of a batch by key."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.changes.positions import Positions, order_changes

CHANGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4) | st.sampled_from([2**63, 2**64, 10**38 - 1])))


@given(CHANGES, st.integers(6, 8))
def test_each_key_has_its_changes_in_the_order_of_the_log(changes: list[tuple[int, int]], count: int):
    keys = np.array([key for key, _ in changes], np.int64)
    positions = Positions.of(pa.array([Decimal(position) for _, position in changes], pa.decimal128(38, 0)))
    ordered = order_changes(keys, count, positions)
    of_key = [
        sorted((row for row, change in enumerate(changes) if change[0] == key), key=lambda row: changes[row][1])
        for key in range(count)
    ]
    assert [ordered.of_key(key).tolist() for key in range(count)] == of_key  # sorted() keeps equal ones as they came
    assert ordered.last.tolist() == [rows[-1] for rows in of_key if rows]
