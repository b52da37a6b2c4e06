"""Keys as numbers."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.changes.positions import ABSENT, KeyNumbers

KEYS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(["", "a", "b", "é"])), max_size=30)


def columns(keys: list[tuple[int, str]]) -> list[pa.Array]:
    return [pa.array([n for n, _ in keys], pa.int64()), pa.array([text for _, text in keys], pa.string())]


@given(KEYS, KEYS)
def test_rows_share_a_number_where_they_share_a_key(keys: list[tuple[int, str]], others: list[tuple[int, str]]):
    key_numbers = KeyNumbers(columns(keys))
    numbers = dict(zip(keys, key_numbers.of_rows.tolist(), strict=True))
    assert [numbers[key] for key in keys] == key_numbers.of_rows.tolist()
    assert sorted(numbers.values()) == list(range(len(key_numbers)))
    assert key_numbers.find(columns(others)).tolist() == [numbers.get(key, ABSENT) for key in others]
