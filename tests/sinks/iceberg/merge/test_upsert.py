"""Merging by key: NULLs, repeated keys, many kinds of keys, and any sequence of batches against a dictionary."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import uuid

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.model.errors import AmbiguousKey, InputError
from tests.sinks.iceberg.lake_table import IN_TASKS, LakeTable, orders, table_rows

pytestmark = pytest.mark.spark

_NAMES = itertools.count(1)
WAYS = ["delete-append", "copy-on-write", "merge"]


def versions(rows: list[tuple[int, int | None, str]]) -> pa.Table:
    ids, seqs, notes = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "seq": pa.array(seqs, pa.int64()), "note": pa.array(notes)})


def test_rows_without_a_key_are_refused_with_their_number(lands: LakeTable) -> None:
    rows = table_rows(pa.table({"id": [1, None, None], "note": ["a", "b", "c"]}))
    with pytest.raises(AmbiguousKey, match="'id' is NULL in 2 rows"):
        lands.land(rows, 1, mode="merge", key=["id"])
    with pytest.raises(InputError, match="needs a key"):
        lands.land(rows, 1, mode="merge")


@pytest.mark.parametrize("upsert", WAYS)
def test_of_repeated_keys_the_latest_stays(lands: LakeTable, upsert: str) -> None:
    sink = lands.sink(mode="merge", key=["id"], upsert=upsert)
    first = versions(
        [(1, 5, "late"), (1, 4, "early"), (2, None, "null"), (2, 0, "zero"), (3, 1, "same"), (3, 1, "same")]
    )
    assert sink.land(lands.attempt(1), table_rows(first, order=["seq"], splits=2)).rows == 3
    second = versions([(2, 7, "seven"), (2, 8, "eight"), (4, 1, "four")])
    assert sink.land(lands.attempt(2), table_rows(second, order=["seq"])).rows == 2
    assert [(row["id"], row["note"]) for row in lands.rows()] == [(1, "late"), (2, "eight"), (3, "same"), (4, "four")]


def test_repeated_keys_that_nothing_orders_are_refused(lands: LakeTable) -> None:
    rows = table_rows(versions([(1, 5, "a"), (1, 5, "b"), (2, 1, "c")]), order=["seq"])
    with pytest.raises(AmbiguousKey, match="1 keys have several different rows"):
        lands.land(rows, 1, mode="merge", key=["id"])
    with pytest.raises(AmbiguousKey):
        lands.land(table_rows(versions([(1, 5, "a"), (1, 6, "b")])), 1, mode="merge", key=["id"])


def test_a_promise_of_new_keys_is_checked(lands: LakeTable) -> None:
    lands.land(orders(range(5)), 1, mode="merge")
    assert lands.land(orders([7], "new"), 2, mode="merge", upsert="append").proof["upsert"] == "append"
    with pytest.raises(AmbiguousKey, match="already has 1 of the keys"):
        lands.land(orders([3, 6], "new"), 3, mode="merge", upsert="append")


KEYS = {
    "day": pa.array([dt.date(2024, 1, n) for n in range(1, 10)]),
    "at": pa.array([dt.datetime(2024, 1, n, tzinfo=dt.UTC) for n in range(1, 10)], pa.timestamp("us", "UTC")),
    "wall": pa.array([dt.datetime(1960, 1, n) for n in range(1, 10)], pa.timestamp("us")),  # noqa: DTZ001
    "price": pa.array([decimal.Decimal(n - 4) / 10 for n in range(9)], pa.decimal128(9, 2)),
    "uid": pa.array([uuid.UUID(int=n).bytes for n in range(9)], pa.uuid()),
    "raw": pa.array([bytes([n]) for n in range(9)]),
    "text": pa.array([f"key {'long ' * 20}{n}" for n in range(9)]),
    "small": pa.array(range(-4, 5), pa.int16()),
}


@pytest.mark.parametrize(
    ("key", "upsert"), [*(([name], "delete-append") for name in KEYS), *((list(KEYS), way) for way in WAYS)], ids=str
)
def test_keys_of_every_kind_are_found(lands: LakeTable, key: list[str], upsert: str) -> None:
    def rows(start: int, text: str) -> pa.Table:
        keys = {name: KEYS[name].slice(start, 6) for name in key}
        return pa.table({**keys, "id": list(range(start, start + 6)), "note": [text] * 6})

    sink = lands.sink(mode="merge", key=key, upsert=upsert)
    sink.land(lands.attempt(1), table_rows(rows(0, "old"), key=key))
    landing = sink.land(lands.attempt(2), table_rows(rows(3, "new"), key=key))
    assert landing.proof["upsert"] == upsert
    assert [(row["id"], row["note"]) for row in lands.rows()] == [(n, "old" if n < 3 else "new") for n in range(9)]


@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
@pytest.mark.parametrize("partition_by", [[], ["bucket(3, id)"]], ids=str)
def test_large_tables_are_searched_and_copied_by_spark_tasks(
    lands: LakeTable, upsert: str, partition_by: list[str]
) -> None:
    sink = lands.sink(mode="merge", upsert=upsert, partition_by=partition_by, tuning=IN_TASKS)
    sink.land(lands.attempt(1), orders(range(20), "old", splits=2))
    sink.land(lands.attempt(2), orders(range(5, 25, 5), "new"))
    assert {row["id"] for row in lands.rows() if "new" in row["note"]} == {5, 10, 15, 20}
    assert len(lands.rows()) == 21


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=8, unique_by=lambda row: row),
    min_size=2,
    max_size=4,
)


@pytest.mark.parametrize("upsert", [*WAYS, "auto"])
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=BATCHES, version=st.sampled_from(["2", "3"]), partition_by=st.sampled_from([[], ["bucket(4, id)"], ["seq"]])
)
def test_any_sequence_of_batches_gives_what_a_dictionary_gives(
    lands: LakeTable, batches: list[list[tuple[int, int]]], version: str, partition_by: list[str], upsert: str
) -> None:
    own = LakeTable(lands.spark, lands.namespace, f"oracle_{next(_NAMES)}")
    properties = {"format-version": version}
    sink = own.sink(mode="merge", key=["id"], upsert=upsert, properties=properties, partition_by=partition_by)
    oracle: dict[int, str] = {}
    for number, batch in enumerate(batches, start=1):
        rows = [(key, seq, f"{number}-{key}-{seq}") for key, seq in batch]
        sink.land(own.attempt(number), table_rows(versions(rows), order=["seq"], splits=2))
        oracle |= {key: note for key, _, note in sorted(rows, key=lambda row: row[1])}
    assert {row["id"]: row["note"] for row in own.rows()} == oracle
    assert len(own.rows()) == len(oracle)
