"""G8 in sinks: the rows that a sink cannot keep are found, one by one, and the others are taken in their order."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import ValueNotKept
from headwater.model.rows import Reject
from headwater.sinks.rejects import SinkRejects, conform, row_of
from headwater.testing.memory_rows import MemoryRejects


class Picky:
    """A sink that takes a batch whole or not at all."""

    def __init__(self, bad: set[int]) -> None:
        self._bad, self.ids = bad, []

    def take(self, batch: pa.RecordBatch) -> None:
        ids = batch.column(0).to_pylist()
        if self._bad & set(ids):
            raise ValueNotKept("column id holds a bad one")
        self.ids += ids


@given(count=st.integers(0, 70), data=st.data())
def test_every_row_is_taken_in_its_order_or_set_aside(count, data):
    bad = data.draw(st.sets(st.integers(0, max(count - 1, 0)))) if count else set()
    collected = MemoryRejects()
    rejects = SinkRejects("1:picky", "t", ("id",), (), collected)
    sink, batch = Picky(bad), pa.record_batch({"id": pa.array(range(count), pa.int64())})
    assert rejects.part(7).write(batch, sink.take) == count - len(bad)
    assert sink.ids == [n for n in range(count) if n not in bad]
    assert collected.splits == [7] * len(bad)
    assert [json.loads(reject.location["row"]) for reject in collected.rejects] == [{"id": n} for n in sorted(bad)]
    assert [row_of(reject).to_pylist() for reject in collected.rejects] == [[{"id": n}] for n in sorted(bad)]
    assert {reject.location["sink"] for reject in collected.rejects} <= {"1:picky"}


def test_where_nobody_sets_rows_aside_the_first_one_stops_the_landing():
    batch = pa.record_batch({"id": [1, 2]})
    with pytest.raises(ValueNotKept, match="a bad one"):
        SinkRejects("1:picky", "t", (), (), None).part(0).write(batch, Picky({2}).take)


def test_rows_alike_without_a_key_are_counted():
    rejects: list[Reject] = []
    part = SinkRejects("1:picky", "t", (), ("id",), MemoryRejects(rejects)).part(0)
    part.write(pa.record_batch({"id": [5, 5, 5]}), Picky({5}).take)
    assert [reject.location["copy"] for reject in rejects] == [1, 2, 3]
    assert len({reject.id for reject in rejects}) == 3


def test_a_reject_shows_what_json_has_no_number_for():
    rejects: list[Reject] = []
    part = SinkRejects("1:picky", "t", ("id",), (), MemoryRejects(rejects)).part(0)
    batch = pa.record_batch(
        {
            "id": [5],
            "a": [float("nan")],
            "b": pa.array([{"x": [float("inf"), 1.0]}]),
            "c": [b"\0"],
            "d": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    part.write(batch, Picky({5}).take)
    payload = json.loads(rejects[0].payload, parse_constant=pytest.fail)
    assert (payload["a"], payload["b"], payload["c"]) == ("NaN", {"x": ["Infinity", 1.0]}, "AA==")
    assert "k" in payload["d"]
    assert row_of(rejects[0]).to_batches()[0].slice(0, 1).schema == batch.schema


def test_a_required_column_without_a_value_sets_its_row_aside():
    rejects: list[Reject] = []
    part = SinkRejects("2:iceberg", "t", ("id",), (), MemoryRejects(rejects)).part(0)
    target = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32(), nullable=False)])
    written: list[dict] = []
    batch = pa.record_batch({"id": [1, 2, 3], "n": pa.array([1, None, 2**40], pa.int64())})
    landed = part.write(batch, lambda some: written.extend(conform(some, target, "t").to_pylist()))
    assert (landed, written) == (1, [{"id": 1, "n": 1}])
    assert ["NULL" in rejects[0].reason, "cannot represent exactly" in rejects[1].reason] == [True, True]
