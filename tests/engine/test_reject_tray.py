"""Rejects that nothing but a count tells apart: as many as there are rows, however the window is cut and read."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.reject_tray import RejectTray, told_apart
from headwater.model.rejects import COPY, Reject
from headwater.model.rows import ReplacingRows
from headwater.sources.split_rows import ArrowRows
from headwater.testing.memory_rows import MemorySplit


def cut(rows: list[str], splits: list[int]) -> dict[tuple[int, str], Reject]:
    """The rows of a table without a key, set aside by the splits that they are in."""
    found, alike = {}, Counter()
    for row, split in zip(rows, splits, strict=False):
        alike[split, row] += 1
        reject = Reject("t", {"row": row, COPY: alike[split, row]}, "bad", row.encode())
        found[split, reject.id] = reject
    return found


@settings(deadline=None)
@given(rows=st.lists(st.sampled_from("abc"), max_size=30), data=st.data())
def test_rows_that_are_alike_are_counted_through_all_splits(rows, data):
    numbers = st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))
    first, again = (told_apart(cut(rows, data.draw(numbers)), "w") for _ in range(2))
    assert Counter(reject.payload.decode() for reject in first) == Counter(rows)
    assert {reject.id for reject in first} == {reject.id for reject in again}
    assert len({reject.id for reject in first}) == len(rows)
    assert not {reject.id for reject in first} & {reject.id for reject in told_apart(cut(rows, [0] * 30), "later")}


def test_a_row_with_a_name_of_its_own_is_one_reject_in_every_window():
    reject = Reject("t", {"row": 1}, "bad", b"x")
    assert told_apart({(0, reject.id): reject}, "a") == told_apart({(5, reject.id): reject}, "b") == [reject]


def test_a_reject_that_is_replayed_keeps_its_window_and_count():
    reject = Reject("t", {"row": 1, "window": "first", COPY: 2}, "bad", b"x")
    assert told_apart({(0, reject.id): reject}, "replay") == [reject]


def test_rows_that_are_watched_keep_saying_which_objects_they_replace():
    class Rejecting(MemorySplit):
        def read_setting_aside(self, set_aside):  # noqa: ARG002 - nothing is bad here
            return self.read()

    table = pa.table({"object_url": ["a"]})
    rows = ArrowRows("t", table.schema, (), (), (Rejecting(table),), "object_url", ("a", "b"), "s3://x/")
    watched = RejectTray(10, lambda: pytest.fail("too early")).watching(rows)
    assert watched.splits != rows.splits
    assert isinstance(watched, ReplacingRows)
    assert (watched.part_column, watched.earlier, watched.part_prefix) == ("object_url", ("a", "b"), "s3://x/")
