"""Arrow's schemas as Spark's and back, with PySpark's own private map as the oracle."""

from __future__ import annotations

import pyarrow as pa
import pyspark.sql.types as sql
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema, to_arrow_type

from headwater.model.errors import SchemaRefused
from headwater.model.spark.schema import arrow_schema, arrow_type, spark_schema, spark_type
from headwater.sources.ddl_schema import schema_of

# Each stands for one of Spark's types, and is what Spark sends for it.
SAME_BOTH_WAYS = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(1, 0),
    pa.decimal128(12, 2),
    pa.decimal128(38, 38),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
    pa.time64("ns"),
    pa.duration("us"),
    pa.null(),
    pa.list_(pa.field("element", pa.int64())),
    pa.list_(pa.field("element", pa.timestamp("us"), nullable=False)),
    pa.map_(pa.string(), pa.field("value", pa.binary())),
    pa.map_(pa.string(), pa.field("value", pa.decimal128(9, 3), nullable=False)),
    pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("B c`", pa.string())]),
    pa.list_(pa.field("element", pa.struct([pa.field("m", pa.map_(pa.string(), pa.field("value", pa.date32())))]))),
    pa.struct([]),
]
# Several of Arrow's that Spark does not tell apart.
ONE_WAY = [
    pa.large_string(),
    pa.large_binary(),
    pa.binary(16),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.timestamp("ms"),
    pa.time64("us"),
    pa.duration("s"),
    pa.large_list(pa.int8()),
    pa.list_(pa.int8(), 3),
    pa.list_(pa.field("item", pa.int8(), nullable=False)),
    pa.dictionary(pa.int32(), pa.string()),
]
REFUSED_BY_BOTH = [
    pa.uint8(),
    pa.uint64(),
    pa.time32("ms"),
    pa.date64(),
    pa.string_view(),
    pa.month_day_nano_interval(),
]


@pytest.mark.parametrize("kind", SAME_BOTH_WAYS, ids=str)
def test_a_type_comes_back_as_it_was(kind):
    assert arrow_type(spark_type(kind)) == kind


@pytest.mark.parametrize("kind", SAME_BOTH_WAYS + ONE_WAY, ids=str)
def test_types_are_those_of_pyspark(kind):
    ours = spark_type(kind)
    assert ours == from_arrow_type(kind, prefer_timestamp_ntz=True)
    assert arrow_type(ours).equals(to_arrow_type(ours), check_metadata=True)


def test_schemas_are_those_of_pyspark():
    kinds = [kind for kind in SAME_BOTH_WAYS + ONE_WAY if kind != pa.null()]
    fields = [pa.field("n", pa.null()), *(pa.field(f"c{n}", kind, n % 2 == 0) for n, kind in enumerate(kinds))]
    schema = pa.schema(fields)
    ours = spark_schema(schema)
    assert ours == from_arrow_schema(schema, prefer_timestamp_ntz=True)
    assert arrow_schema(ours).equals(to_arrow_schema(ours), check_metadata=True)


def test_every_type_that_ddl_has_a_word_for_is_there():
    ddl = (
        "a boolean, b tinyint, c smallint, d int, e bigint NOT NULL, f float, g double, h string, i binary, j date, "
        "k timestamp, l timestamp_ntz, m decimal(20,4), n array<string>, o map<string,bigint>, p struct<x: int>"
    )
    schema = schema_of(ddl)
    assert spark_schema(schema) == from_arrow_schema(schema, prefer_timestamp_ntz=True)


def test_a_variant_is_told_by_its_mark():
    sent = arrow_type(sql.VariantType())
    assert sent.equals(to_arrow_type(sql.VariantType()), check_metadata=True)
    assert spark_type(sent) == sql.VariantType()
    alike = pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    )
    assert isinstance(spark_type(alike), sql.StructType)


def test_collations_and_own_types_are_what_they_hold():
    assert arrow_type(sql.StringType("UNICODE_CI")) == pa.string()
    assert spark_type(pa.uuid()) == sql.BinaryType()


@pytest.mark.parametrize("kind", REFUSED_BY_BOTH, ids=str)
def test_a_type_that_spark_lacks_is_refused_by_name(kind):
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_TYPE"):
        from_arrow_type(kind)
    with pytest.raises(SchemaRefused, match="Spark has no type for Arrow's"):
        spark_type(kind)


def test_a_decimal_with_more_digits_than_spark_has_is_refused():
    with pytest.raises(SchemaRefused, match=r"decimal256\(39, 0\)"):
        spark_type(pa.decimal256(39, 0))


@pytest.mark.parametrize("kind", [sql.YearMonthIntervalType(), sql.CalendarIntervalType(), sql.VarcharType(3)], ids=str)
def test_a_type_that_arrow_lacks_is_refused_by_name(kind):
    with pytest.raises(SchemaRefused, match="Arrow has no type for Spark's"):
        arrow_type(kind)
