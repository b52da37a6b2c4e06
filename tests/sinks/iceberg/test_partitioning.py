"""Partition values, compared with pyiceberg's own."""

# ruff: noqa: DTZ001 - wall clocks without a zone are part of the subject
from __future__ import annotations

import datetime as dt
import decimal
import uuid

import pyarrow as pa
import pytest
from pyiceberg import transforms, types

from headwater.config.sinks.iceberg import PartitionField, parse_partition_field
from headwater.sinks.iceberg.partitioning import PartitionColumn, by_partition, partition_values

TIMES = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12, 30), None]
DATES = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 1, 1), dt.date(2024, 2, 29), None]
EPOCH = dt.datetime(1970, 1, 1)


def micros(value: dt.datetime | None) -> int | None:
    return None if value is None else (value - EPOCH) // dt.timedelta(microseconds=1)


def days(value: dt.date | None) -> int | None:
    return None if value is None else (value - EPOCH.date()).days


@pytest.mark.parametrize("name", ["year", "month", "day", "hour"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_cut_as_iceberg_does(name: str, zone: str | None) -> None:
    source = pa.array(
        [None if t is None else t.replace(tzinfo=dt.UTC if zone else None) for t in TIMES], pa.timestamp("us", zone)
    )
    theirs = transforms.parse_transform(name).transform(types.TimestamptzType() if zone else types.TimestampType())
    assert partition_values(source, name).cast(pa.int32()).to_pylist() == [theirs(micros(t)) for t in TIMES]


@pytest.mark.parametrize("name", ["year", "month", "day"])
def test_dates_are_cut_as_iceberg_does(name: str) -> None:
    theirs = transforms.parse_transform(name).transform(types.DateType())
    ours = partition_values(pa.array(DATES, pa.date32()), name).cast(pa.int32()).to_pylist()
    assert ours == [theirs(days(d)) for d in DATES]


SAMPLES = [
    (pa.int32(), types.IntegerType(), [0, 1, -1, 34, 2**31 - 1, -(2**31), None]),
    (pa.int64(), types.LongType(), [0, 1, -1, 34, 2**63 - 1, -(2**63), None]),
    (pa.string(), types.StringType(), ["", "iceberg", "älter", "日本語テキスト", None]),
    (pa.binary(), types.BinaryType(), [b"", b"\x00\x01\x02\x03\x04", None]),
    (pa.decimal128(9, 2), types.DecimalType(9, 2), [decimal.Decimal(t) for t in ("0.00", "14.20", "-0.01", "-127.99")]),
]


@pytest.mark.parametrize(("kind", "iceberg", "values"), SAMPLES)
@pytest.mark.parametrize("name", ["bucket[16]", "truncate[3]"])
def test_buckets_and_truncations_are_icebergs(kind, iceberg, values, name) -> None:
    theirs = transforms.parse_transform(name).transform(iceberg)
    expected = [theirs(value) for value in values]
    if kind == pa.int64() and name.startswith("truncate"):
        values, expected = values[:-2], expected[:-2]  # the least long has no lower neighbour
    if kind == pa.int32() and name.startswith("truncate"):
        values, expected = values[:-2], expected[:-2]
    assert partition_values(pa.array(values, kind), name).to_pylist() == expected


def test_buckets_of_dates_times_and_uuids_are_icebergs() -> None:
    dates = transforms.BucketTransform(7).transform(types.DateType())
    assert partition_values(pa.array(DATES, pa.date32()), "bucket[7]").to_pylist() == [dates(days(d)) for d in DATES]
    times = transforms.BucketTransform(7).transform(types.TimestampType())
    assert partition_values(pa.array(TIMES, pa.timestamp("us")), "bucket[7]").to_pylist() == [
        times(micros(t)) for t in TIMES
    ]
    value = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    theirs = transforms.BucketTransform(7).transform(types.UUIDType())(value)
    assert partition_values(pa.array([value.bytes], pa.uuid()), "bucket[7]").to_pylist() == [theirs]


def test_a_batch_is_cut_by_all_its_partition_columns() -> None:
    batch = pa.record_batch({"a": ["x", "y", "x", None], "n": pa.array([1, 2, 11, 4])})
    parts = dict(by_partition(batch, [PartitionColumn("a", "identity"), PartitionColumn("n", "truncate[10]")]))
    assert {values: rows.column("n").to_pylist() for values, rows in parts.items()} == {
        ("x", 0): [1], ("x", 10): [11], ("y", 0): [2], (None, 0): [4],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("country", PartitionField("country", "identity")),
        ("day(updated_at)", PartitionField("updated_at", "day")),
        ("Bucket( 16 , id )", PartitionField("id", "bucket[16]")),
        ("truncate(3, odd (name))", PartitionField("odd (name)", "truncate[3]")),
        ("identity(f(x))", PartitionField("f(x)", "identity")),
    ],
)
def test_partition_fields_are_read(text: str, field: PartitionField) -> None:
    assert parse_partition_field(text) == field


@pytest.mark.parametrize("text", ["", "week(at)", "bucket(id)", "bucket(0, id)", "bucket(x, id)", "day(3, at)"])
def test_a_wrong_partition_field_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write a column, or year"):
        parse_partition_field(text)
