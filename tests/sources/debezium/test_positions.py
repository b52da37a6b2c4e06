"""Which changes of a row at one place of a MySQL log have an order that nobody told."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.sources.debezium.change_batch import Change, at_one_position, unordered


def change(number: int, key: int, op: str = "u", after: int | None = 0, place: int = 1) -> Change:
    return Change(place, number, (key,), op, after)


SHIFTED = [change(0, 7, "d", None), change(0, 8, "c"), change(1, 6, "d", None), change(1, 7, "c")]


@pytest.mark.parametrize(
    ("changes", "unordered_indices"),
    [
        ([change(0, 1), change(0, 2), change(1, 1)], []),  # the same number, other rows
        ([change(0, 1, place=1), change(0, 1, place=2)], []),
        ([change(0, 1, after=1), change(0, 1, after=2)], [0, 1]),
        ([change(1, 1, "c"), change(0, 1, "d", None)], [0, 1]),
        ([change(0, 1), change(0, 1)], []),  # sent again
        (SHIFTED, []),  # UPDATE t SET id = id + 1 ORDER BY id DESC
        (SHIFTED * 2, []),
        ([change(0, 2), change(0, 1, after=1), change(0, 1, after=2)], [1, 2]),
    ],
)
def test_only_what_has_no_order_is_found(changes, unordered_indices):
    assert list(unordered(changes)) == unordered_indices


def test_places_where_numbers_grow_are_not_looked_at():
    ours = np.ones(6, np.bool_)
    major, minor = np.array([1, 1, 2, 3, 3, 4]), np.array([0, 1, 0, 0, 0, 0])
    assert at_one_position(major, minor, ours).tolist() == [3, 4]
    assert at_one_position(major, np.arange(6), ours).tolist() == []
    assert at_one_position(np.full(6, -1), minor, ours).tolist() == []  # they have no place at all
    assert at_one_position(major, minor, ~ours).tolist() == []
    assert at_one_position(major[:0], minor[:0], ours[:0]).tolist() == []
    reads = np.array([False, False, False, True, False, False])
    assert at_one_position(major, minor, ~reads).tolist() == []  # a snapshot's read and a change: the read comes before
