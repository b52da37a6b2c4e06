"""Keys by bucket: exactly those that a file of the bucket can hold."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sinks.iceberg.merge.key_lookup import KeysByBucket, KeySet
from headwater.sinks.iceberg.partitioning import Bucket, buckets_of, partition_values
from tests.sinks.iceberg.lake_table import LakeTable, orders
from tests.sinks.iceberg.merge.test_replace_object import out_of_reach

COLUMNS = {
    1: pa.array(range(50), pa.int64()),
    2: pa.array([f"k{n}" for n in range(50)]),
    3: pa.array([decimal.Decimal(n) / 10 for n in range(50)], pa.decimal128(9, 2)),
    4: pa.array([uuid.UUID(int=n).bytes for n in range(50)], pa.uuid()),
    5: pa.array([dt.date(2024, 1, 1) + dt.timedelta(days=n) for n in range(50)]),
}


@given(st.sampled_from(sorted(COLUMNS)), st.integers(1, 9))
def test_every_key_is_in_its_bucket_and_in_no_other(column: int, width: int) -> None:
    keys = KeysByBucket(KeySet([COLUMNS[column]]), [column])
    numbers = partition_values(COLUMNS[column], f"bucket[{width}]").to_pylist()
    for number in range(width):
        bucket = (Bucket(column, width, number),)
        selected = keys.of(bucket)
        assert (0 if selected is None else len(selected)) == numbers.count(number)
        assert keys.may_be_in(bucket) == (number in numbers)


def test_two_buckets_leave_the_keys_that_are_in_both() -> None:
    keys = KeysByBucket(KeySet([COLUMNS[1], COLUMNS[2]]), [1, 2])
    one, two = (partition_values(COLUMNS[n], "bucket[3]").to_pylist() for n in (1, 2))
    selected = keys.of((Bucket(1, 3, 0), Bucket(2, 3, 2)))
    assert selected is not None
    assert selected.columns[0].to_pylist() == [n for n in range(50) if (one[n], two[n]) == (0, 2)]


def test_buckets_of_other_columns_say_nothing() -> None:
    keys = KeySet([COLUMNS[1]])
    assert KeysByBucket(keys, [1]).of((Bucket(9, 4, 0),)) is keys
    assert KeysByBucket(keys, [1]).of(()) is keys
    assert not KeysByBucket(keys, [1]).may_be_in((Bucket(1, 4, -1),)), "a bucket of NULL"


def test_buckets_are_read_from_a_files_spec_and_partition() -> None:
    fields = [("bucket[4]", 1), ("day", 2), ("bucket[8]", 3)]
    spec = {"fields": [{"transform": transform, "source-id": column} for transform, column in fields]}
    assert buckets_of(spec, [2, "2024-01-01", None]) == (Bucket(1, 4, 2), Bucket(3, 8, -1))


@pytest.mark.spark
@pytest.mark.parametrize("upsert", ["delete-append", "copy-on-write"])
def test_only_files_of_the_batchs_buckets_are_read(lands: LakeTable, lake_folder: Path, upsert: str) -> None:
    sink = lands.sink(mode="merge", partition_by=["bucket(4, id)"], upsert=upsert)
    sink.land(lands.attempt(1), orders(range(40), "old"))
    numbers = partition_values(pa.array(range(40)), "bucket[4]").to_pylist()
    chosen = [n for n in range(40) if numbers[n] == 1]
    files = lands.spark.sql(f"SELECT file_path FROM {lands.table}.files WHERE partition.id_bucket = 1").collect()
    with out_of_reach(lands, lake_folder, but={row.file_path.rsplit("/", 1)[1] for row in files}):
        landing = sink.land(lands.attempt(2), orders([chosen[0], chosen[-1]], "new"))
    assert "in 1 files, each of 1 buckets against its own keys" in landing.proof["why"]
    assert [row["id"] for row in lands.rows() if "new" in row["note"]] == [chosen[0], chosen[-1]]
    assert len(lands.rows()) == 40


@pytest.mark.spark
def test_files_of_former_partitions_are_searched_too(lands: LakeTable) -> None:
    sink = lands.sink(mode="merge", partition_by=["bucket(4, id)"])
    sink.land(lands.attempt(1), orders(range(20), "first"))
    lands.spark.sql(f"ALTER TABLE {lands.table} REPLACE PARTITION FIELD id_bucket WITH bucket(7, id)")
    sink.land(lands.attempt(2), orders(range(10, 30), "second"))
    lands.spark.sql(f"ALTER TABLE {lands.table} DROP PARTITION FIELD bucket(7, id)")
    sink.land(lands.attempt(3), orders(range(5, 25), "third"))
    assert [row["note"].split()[0] for row in lands.rows()] == ["first"] * 5 + ["third"] * 20 + ["second"] * 5
