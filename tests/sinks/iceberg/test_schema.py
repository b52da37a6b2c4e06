"""What a table's schema may follow, pair by pair."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from headwater.model.errors import SchemaRefused
from headwater.sinks.iceberg.schema import Column, Evolution, TableSchema, plan_evolution, plan_new, table_schema

TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(9, 2)": pa.decimal128(9, 2),
    "decimal(12, 2)": pa.decimal128(12, 2),
    "decimal(12, 3)": pa.decimal128(12, 3),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "binary": pa.binary(),
    "fixed[4]": pa.binary(4),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64())]),
    "other struct": pa.struct([("a", pa.string())]),
    "map": pa.map_(pa.string(), pa.int64()),
}
WIDENED = {("int", "long"), ("float", "double"), ("decimal(9, 2)", "decimal(12, 2)")}


@pytest.mark.parametrize(("table", "rows"), list(itertools.product(TYPES, TYPES)))
def test_a_type_fits_is_widened_or_is_refused(table: str, rows: str) -> None:
    have = table_schema(pa.schema([("c", TYPES[table])]), ())
    evolution = plan_evolution(have, pa.schema([("c", TYPES[rows])]))
    if table == rows or (rows, table) in WIDENED:
        assert evolution == Evolution()
    elif (table, rows) in WIDENED:
        assert evolution == Evolution(widen=(("c", rows),))
    else:
        assert not evolution.changes
        assert len(evolution.refusals) == 1
        assert "'c' is" in evolution.refusals[0]


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (pa.int8(), "int"), (pa.uint16(), "int"), (pa.uint32(), "long"), (pa.uint64(), "decimal(20, 0)"),
        (pa.float16(), "float"), (pa.large_string(), "string"), (pa.string_view(), "string"), (pa.null(), "string"),
        (pa.large_binary(), "binary"), (pa.date64(), "date"), (pa.timestamp("ns"), "timestamp"),
        (pa.timestamp("s", "Europe/Berlin"), "timestamptz"), (pa.time64("us"), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"), (pa.json_(), "string"), (pa.decimal64(5, 0), "decimal(5, 0)"),
    ],
)  # fmt: skip
def test_each_arrow_type_has_one_iceberg_type(arrow: pa.DataType, iceberg: str) -> None:
    assert table_schema(pa.schema([("c", arrow)]), ()).columns == (Column(1, "c", required=False, type=iceberg),)


def test_a_new_column_is_added_and_may_be_null() -> None:
    table = table_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ("id",))
    rows = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("at", pa.date32(), nullable=False)])
    assert plan_evolution(table, rows) == Evolution(add=(Column(0, "at", required=False, type="date"),))


def test_a_column_that_disappeared_or_may_be_null_now_is_relaxed() -> None:
    fields = [pa.field(name, pa.int64(), nullable=False) for name in ("id", "gone", "kept")]
    rows = pa.schema([fields[0], pa.field("kept", pa.int64(), nullable=True)])
    assert plan_evolution(table_schema(pa.schema(fields), ()), rows) == Evolution(relax=("kept", "gone"))


def test_every_refusal_is_listed_by_name() -> None:
    table = table_schema(pa.schema([("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("Note", pa.string())]), ())
    rows = pa.schema([("id", pa.string()), ("price", pa.float64()), ("note", pa.string()), ("for", pa.duration("s"))])
    with pytest.raises(SchemaRefused) as refused:
        plan_evolution(table, rows).check("lake.shop.orders")
    text = str(refused.value)
    assert "'id' is long in the table and string in the source" in text
    assert "'price' is decimal(9, 2) in the table and double in the source" in text
    assert "'note' is 'Note' in the table" in text
    assert "'for' is duration[s], which Iceberg cannot represent exactly" in text


def test_names_that_differ_in_case_only_and_reserved_names_are_refused() -> None:
    rows = pa.schema([("id", pa.int64()), ("ID", pa.int64()), ("_pos", pa.int64()), ("", pa.int64())])
    refusals = plan_new(rows).refusals
    assert len(refusals) == 3
    assert any("'id', 'ID' differ only in case" in refusal for refusal in refusals)
    assert any("'_pos'" in refusal for refusal in refusals)


def test_identifiers_are_only_columns_that_are_never_null() -> None:
    fields = [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())]
    assert table_schema(pa.schema(fields), ("a",)).identifiers == (1,)
    assert table_schema(pa.schema(fields), ("a", "b")).identifiers == ()


def test_a_schema_survives_json_and_gives_field_ids_to_arrow() -> None:
    kind = pa.struct([("x", pa.list_(pa.map_(pa.string(), pa.int64())))])
    schema = table_schema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("deep", kind)]), ("id",))
    assert TableSchema.from_json(schema.to_json()) == schema
    arrow = schema.to_arrow()
    assert [field.metadata[b"PARQUET:field_id"] for field in arrow] == [b"1", b"2"]
    assert arrow.field("deep").type.field("x").metadata[b"PARQUET:field_id"] == b"3"
