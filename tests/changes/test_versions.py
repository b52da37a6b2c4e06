"""Versions and their ends, against plain Python."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.changes.positions import Positions
from headwater.changes.versions import Points, intervals

POINTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.booleans()), unique_by=lambda p: p[:2])


@given(POINTS, st.sets(st.integers(21, 40), max_size=3), st.sets(st.integers(0, 20), max_size=3))
def test_a_version_ends_at_the_next_point_of_its_key_or_at_a_truncate(
    points: list, late: set[int], truncates: set[int]
):
    twice = points + points[::2]  # some are known already
    column = pa.array([Decimal(2 * position) for _, position, _ in twice], pa.decimal128(38, 0))
    ends = {2 * position + 1: position for position in truncates | late}
    result = intervals(
        Points(
            np.array([key for key, _, _ in twice], np.int64),
            Positions.of(column),
            np.array([position for _, position, _ in twice], np.int64),
            np.array([gone for _, _, gone in twice], np.bool_),
            np.array([0] * len(points) + [1] * len(points[::2]), np.int64),
        ),
        ends,
    )
    end_by_point = {
        int(point): int(result.until.at(n)) if result.ends[n] else None for n, point in enumerate(result.point)
    }
    wanted = {}
    for number, (key, position, gone) in enumerate(points):
        if not gone:
            after = [2 * other for same, other, _ in points if same == key and other > position]
            after += [end for end in ends if end > 2 * position]
            wanted[number] = min(after, default=None)
    assert end_by_point == wanted
