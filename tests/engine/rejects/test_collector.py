"""Rejects that nothing but a count tells apart: as many as there are rows, however the window is cut and read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.rejects.collector import RejectAccumulator, RejectCollector, numbered_copies
from headwater.model.errors import ValueNotKept
from headwater.model.rows import COPY, MemorySplit, Reject, Rows


def cut(rows: list[str], splits: list[int]) -> dict[tuple[int, str], Reject]:
    """The rows of a table without a key, set aside by the splits that they are in."""
    collected, alike = {}, Counter()
    for row, split in zip(rows, splits, strict=False):
        alike[split, row] += 1
        reject = Reject("t", {"row": row, COPY: alike[split, row]}, "bad", row.encode())
        collected[split, reject.id] = reject
    return collected


@given(rows=st.lists(st.sampled_from("abc"), max_size=30), data=st.data())
def test_rows_that_are_alike_are_counted_through_all_splits(rows, data):
    numbers = st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))
    first, again = (numbered_copies(cut(rows, data.draw(numbers)), "w") for _ in range(2))
    assert Counter(reject.payload.decode() for reject in first) == Counter(rows)
    assert {reject.id for reject in first} == {reject.id for reject in again}
    assert len({reject.id for reject in first}) == len(rows)
    assert not {reject.id for reject in first} & {reject.id for reject in numbered_copies(cut(rows, [0] * 30), "later")}


def test_a_row_with_a_name_of_its_own_is_one_reject_in_every_window():
    reject = Reject("t", {"row": 1}, "bad", b"x")
    assert numbered_copies({(0, reject.id): reject}, "a") == numbered_copies({(5, reject.id): reject}, "b") == [reject]


def test_a_reject_that_is_replayed_keeps_its_window_and_count():
    reject = Reject("t", {"row": 1, "window": "first", COPY: 2}, "bad", b"x")
    assert numbered_copies({(0, reject.id): reject}, "replay") == [reject]


def test_rows_that_are_read_here_reject_by_their_split_without_a_session():
    table = pa.table({"id": [1, 2]})
    rejects = [Reject("t", {"row": "alike", COPY: 1}, "bad", b"x")] * 2
    rows = Rows(
        "t", table.schema, splits=tuple(MemorySplit(tuple(table.to_batches()), (reject,)) for reject in rejects)
    )
    with pytest.raises(ValueNotKept, match="bad"):
        list(chain.from_iterable(rows.read_splits()))
    collector = RejectCollector(10, "w", RejectAccumulator(lambda: pytest.fail("too early")))
    watched = replace(rows, rejects=collector)
    for _ in range(2):  # two sinks
        assert sum(batch.num_rows for batch in chain.from_iterable(watched.read_splits())) == 4
    assert [reject.location[COPY] for reject in collector.rejects()] == [1, 2]
    assert repr(watched) == repr(rows)


@pytest.mark.spark
def test_what_a_task_of_an_earlier_attempt_sends_is_not_counted(spark):
    accumulator = RejectAccumulator(lambda: spark)
    earlier, later = (RejectCollector(10, "w", accumulator) for _ in range(2))
    reject_in_tasks(spark, earlier, ["a", "b"])
    assert later.rejects() == []
    reject_in_tasks(spark, later, ["b", "b", "c"])
    assert [reject.location["row"] for reject in later.rejects()] == ["b", "c"]
    assert RejectCollector(10, "w", accumulator).rejects() == []


def reject_in_tasks(spark, collector: RejectCollector, names: list[str]) -> None:
    tasks = spark.sparkContext.parallelize(names, len(names))
    tasks.foreach(lambda name: collector.add(0, Reject("t", {"row": name}, "bad", b"x")))
