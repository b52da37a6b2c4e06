"""Decisions of the Iceberg sink that need no Spark: names, upsert plans, SQL, casts, key sets, vectors."""

# ruff: noqa: DTZ001 - wall clocks without a zone are part of the subject
from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from headwater.model.errors import InputError, RunError, SourceUnreachable, UnknownName, ValueNotKept
from headwater.sinks.iceberg.catalog.table import check_distinct, landing_id, table_for
from headwater.sinks.iceberg.data_files import read_vector, write_vectors
from headwater.sinks.iceberg.merge.key_lookup import KeySet
from headwater.sinks.iceberg.merge.spark_merge import literal, merge_statement, replace_statement
from headwater.sinks.iceberg.merge.strategy import (
    DEFAULT_TUNING,
    BatchStats,
    TableStats,
    UpsertPlan,
    choose_upsert,
    reconsider,
)
from headwater.sinks.iceberg.modes import check_key
from headwater.sinks.iceberg.schema import table_schema
from headwater.sinks.rejects import conform
from headwater.sinks.tasks import encoded_errors, task_error


@pytest.mark.parametrize(
    ("template", "stream", "table"),
    [
        ("lake.shop.{stream}", "sales.orders", "lake.shop.orders"),
        ("lake.shop.{stream}", "orders", "lake.shop.orders"),
        ("lake.{schema}.{table}_raw", "sales.orders", "lake.sales.orders_raw"),
        ("lake.{schema}.{table}", "orders", "lake.default.orders"),
        ("lake.a.b.fixed", "sales.orders", "lake.a.b.fixed"),
        ("lake.shop.{stream}", 'sales.Order Items/"x"', "lake.shop.Order_Items__x_"),
    ],
)
def test_a_stream_has_its_table(template: str, stream: str, table: str) -> None:
    assert str(table_for(template, stream)) == table


def test_two_streams_never_share_a_table() -> None:
    check_distinct("lake.shop.{schema}_{table}", ["a.orders", "b.orders"])
    with pytest.raises(InputError, match=r"'a.orders' and 'b.orders' would both land in lake.shop.orders"):
        check_distinct("lake.shop.{stream}", ["a.orders", "b.orders"])


def test_a_landing_is_named_by_everything_that_tells_it_apart() -> None:
    names = {landing_id(*parts) for parts in (("p", "s", "t", "w"), ("p", "s", "tw", ""), ("q", "s", "t", "w"))}
    assert len(names) == 3


TABLE = TableStats(format_version=3, rows=900_000, files=2, file_rows=900_000, file_bytes=50 << 20)
SMALL = TableStats(
    format_version=3, rows=900_000, files=2, file_rows=DEFAULT_TUNING.small_rows, file_bytes=DEFAULT_TUNING.small_bytes
)


@pytest.mark.parametrize(
    ("batch", "table", "setting", "strategy"),
    [
        (BatchStats(10), TABLE, "auto", "delete-append"),
        (BatchStats(10), TABLE, "delete-append", "delete-append"),
        (BatchStats(10), TABLE, "merge", "merge"),
        (BatchStats(10), TABLE, "append", "append"),
        (BatchStats(10), TableStats(3, 0, 0), "merge", "append"),
        (BatchStats(10), TableStats(3, 100, 0), "auto", "append"),
        (BatchStats(10), TableStats(2, 100, 1), "auto", "copy-on-write"),
        (BatchStats(10), TableStats(2, 900_000, 9, 900_000, file_bytes=50 << 20), "auto", "copy-on-write"),
        (BatchStats(10), TableStats(1, 100, 1), "auto", "merge"),
        (BatchStats(10), SMALL, "auto", "copy-on-write"),
        (BatchStats(10), replace(SMALL, file_rows=DEFAULT_TUNING.small_rows + 1), "auto", "delete-append"),
        (BatchStats(10), replace(SMALL, file_bytes=DEFAULT_TUNING.small_bytes + 1), "auto", "delete-append"),
        (BatchStats(10), SMALL, "delete-append", "delete-append"),
        (BatchStats(10), SMALL, "merge", "merge"),
        (BatchStats(10), TABLE, "copy-on-write", "copy-on-write"),
        (BatchStats(10), TableStats(3, 100, 0), "copy-on-write", "append"),
        (BatchStats(10), TableStats(2, 100, 1), "delete-append", "delete-append"),
        (BatchStats(10), TableStats(2, 0, 0), "auto", "append"),
        (BatchStats(10, repeated=1), TableStats(1, 0, 0), "auto", "merge"),
        (BatchStats(10, repeated=1), TableStats(2, 0, 0), "auto", "append"),
        (BatchStats(10, repeated=1), TableStats(3, 0, 0), "auto", "append"),
        (BatchStats(10), TableStats(3, 100, 1, unreadable="avro"), "auto", "merge"),
        (BatchStats(DEFAULT_TUNING.max_keys + 1), TABLE, "auto", "merge"),
    ],
)
def test_the_upsert_is_chosen_from_statistics(batch, table, setting, strategy) -> None:
    plan = choose_upsert(batch, table, setting)
    assert plan.strategy == strategy
    assert plan.why
    assert plan.must_be_new == (setting == "append" and table.files > 0)


def test_an_upsert_setting_that_is_not_possible_is_refused() -> None:
    with pytest.raises(InputError, match="format version 1 has no delete files"):
        choose_upsert(BatchStats(10), TableStats(1, 100, 1), "delete-append")
    with pytest.raises(InputError, match="upsert: copy-on-write is not possible: avro"):
        choose_upsert(BatchStats(10), replace(TABLE, unreadable="avro"), "copy-on-write")


@pytest.mark.parametrize(
    ("strategy", "removed", "remaining", "setting", "then"),
    [
        ("delete-append", 400, 100, "auto", "copy-on-write"),
        ("delete-append", 399, 100, "auto", "delete-append"),
        ("delete-append", 400, 100, "delete-append", "delete-append"),
        ("delete-append", 400, 0, "auto", "delete-append"),  # the files go whole
        ("append", 0, 0, "auto", "append"),
        ("copy-on-write", 1, 100, "auto", "copy-on-write"),
    ],
)
def test_files_that_lose_most_of_their_rows_are_copied(strategy, removed, remaining, setting, then) -> None:
    assert reconsider(UpsertPlan(strategy, "so"), removed, remaining, setting).strategy == then


def test_a_plan_says_how_many_buckets_are_searched() -> None:
    plan = choose_upsert(BatchStats(10), replace(TABLE, buckets=4), "auto")
    assert plan.why == "10 keys against 900000 rows in 2 files, each of 4 buckets against its own keys"


SCHEMA = table_schema(pa.schema([("id", pa.int64()), ("the `day`", pa.date32())]), ())


def test_the_merge_statement_quotes_names_and_bounds_keys() -> None:
    bounds = {"id": (1, 9), "the `day`": (dt.date(2024, 1, 1), dt.date(2024, 1, 2))}
    statement = merge_statement("`lake`.`t`.`branch_x`", "v", schema=SCHEMA, key=["id"], order=["seq"], bounds=bounds)
    assert statement == (
        "MERGE INTO `lake`.`t`.`branch_x` AS t\n"
        "USING (SELECT `id`, `the ``day``` FROM (SELECT `id`, `the ``day```, "
        "row_number() OVER (PARTITION BY `id` ORDER BY `seq` DESC NULLS LAST) "
        "AS `headwater number of row` FROM `v`) WHERE `headwater number of row` = 1) AS s\n"
        "ON t.`id` = s.`id` AND t.`id` BETWEEN 1 AND 9 "
        "AND t.`the ``day``` BETWEEN DATE '2024-01-01' AND DATE '2024-01-02'\n"
        "WHEN MATCHED THEN UPDATE SET t.`id` = s.`id`, t.`the ``day``` = s.`the ``day```\n"
        "WHEN NOT MATCHED THEN INSERT (`id`, `the ``day```) VALUES (s.`id`, s.`the ``day```)"
    )


def test_the_statement_that_replaces_objects_removes_by_the_view_and_adds_the_rest() -> None:
    schema = table_schema(pa.schema([("id", pa.int64()), ("object url", pa.string())]), ())
    bounds = {"object url": ("s3://b/it's", "s3://b/z")}
    assert replace_statement("`t`", "v", "gone", schema=schema, object_column="object url", bounds=bounds) == (
        "MERGE INTO `t` AS t\n"
        "USING (SELECT `id`, `object url`, CAST(NULL AS STRING) AS `headwater removes` FROM `v`\n"
        "UNION ALL SELECT NULL, NULL, * FROM `gone`) AS s\n"
        "ON t.`object url` = s.`headwater removes` AND t.`object url` BETWEEN 's3://b/it\\'s' AND 's3://b/z'\n"
        "WHEN MATCHED THEN DELETE\n"
        "WHEN NOT MATCHED AND s.`headwater removes` IS NULL THEN "
        "INSERT (`id`, `object url`) VALUES (s.`id`, s.`object url`)"
    )


def test_values_are_written_as_spark_literals() -> None:
    assert literal("it's \\ here") == "'it\\'s \\\\ here'"
    assert literal(dt.datetime(2024, 1, 1, 2)) == "TIMESTAMP_NTZ '2024-01-01 02:00:00.000000'"
    assert literal(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) == "TIMESTAMP '2024-01-01 00:00:00.000000+00:00'"
    assert literal(decimal.Decimal("1.50")) == "1.50BD"


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (pa.array([1.5]), pa.int64()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([decimal.Decimal("1.234")]), pa.decimal128(9, 2)),
        (pa.array([2**53 + 1]), pa.float64()),
    ],
)
def test_a_value_that_would_change_is_refused(values: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(ValueNotKept, match="shop: column 'c'"):
        conform(pa.record_batch([values], names=["c"]), pa.schema([("c", target)]), "shop")


def test_a_batch_takes_the_tables_columns_in_the_tables_order() -> None:
    target = pa.schema([("new", pa.string()), ("t", pa.string()), ("n", pa.int64()), ("u", pa.uuid())])
    source = {
        "n": pa.array([1, None], pa.int8()),
        "t": pa.array([dt.time(1, 2, 3, 4)] * 2),
        "u": pa.array([b"1" * 16] * 2, pa.binary(16)),
    }
    conformed = conform(pa.record_batch(source), target, "shop")
    assert conformed.schema.names == ["new", "t", "n", "u"]
    assert [column.to_pylist() for column in conformed.columns[:3]] == [
        [None, None],
        ["01:02:03.000004"] * 2,
        [1, None],
    ]


def test_a_null_that_the_table_cannot_take_is_refused() -> None:
    target = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(ValueNotKept, match="1 NULL values"):
        conform(pa.record_batch({"n": [1, None]}), target, "shop")


def test_a_key_that_cannot_name_rows_is_refused() -> None:
    schema = pa.schema([("order_id", pa.int64()), ("x", pa.float64())])
    with pytest.raises(InputError, match="needs a key"):
        check_key([], schema, "shop")
    with pytest.raises(UnknownName, match="'orderid'") as unknown:
        check_key(["orderid"], schema, "shop")
    assert "did you mean 'order_id'" in str(unknown.value)
    with pytest.raises(InputError, match="'x' is double"):
        check_key(["x"], schema, "shop")


KEYS = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30)),
    st.tuples(st.just(pa.int32()), st.lists(st.integers(-5, 5), max_size=30)),
    st.tuples(st.just(pa.string()), st.lists(st.text(max_size=3), max_size=30)),
    st.tuples(st.just(pa.timestamp("us")), st.lists(st.integers(-(10**6), 10**6), max_size=30)),
    st.tuples(st.just(pa.decimal128(5, 0)), st.lists(st.integers(-99, 99).map(decimal.Decimal), max_size=30)),
)


@given(KEYS, st.data())
def test_a_key_set_finds_exactly_its_keys(kind_and_keys, data: st.DataObject) -> None:
    kind, values = kind_and_keys
    keys = data.draw(st.lists(st.sampled_from(values), min_size=1)) if values else []
    if not keys:
        return
    column = pa.array([*values, None], kind)
    matches = KeySet([pa.array(keys, kind)]).find([column])
    wanted = set(pa.array(keys, kind).to_pylist())
    assert matches.tolist() == [place for place, value in enumerate(column.to_pylist()) if value in wanted]


@given(st.lists(st.none() | st.sampled_from("abcd"), max_size=30), st.lists(st.sampled_from("abx"), min_size=1))
def test_texts_that_repeat_are_found_through_their_dictionary(values: list[str | None], keys: list[str]) -> None:
    column = pa.array(values, pa.string())
    matches = [KeySet([pa.array(keys)]).find([way]).tolist() for way in (column, column.dictionary_encode())]
    assert matches[0] == matches[1] == [place for place, value in enumerate(values) if value in keys]


@given(st.lists(st.text(max_size=2), min_size=1, max_size=9), st.text(max_size=2), st.text(max_size=2))
def test_bounds_of_texts_leave_out_exactly_what_cannot_hold_one(keys: list[str], one: str, other: str) -> None:
    low, high = sorted([one, other])
    assert KeySet([pa.array(keys)]).may_be_between([low], [high]) == any(low <= key <= high for key in keys)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1, max_size=20), st.data())
def test_a_key_of_two_columns_is_found_as_a_whole(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from(rows), min_size=1))
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in ((0, pa.int64()), (1, pa.string()))]
    sought = KeySet([pa.array([key[n] for key in keys], kind) for n, kind in ((0, pa.int64()), (1, pa.string()))])
    assert sought.find(columns).tolist() == [place for place, row in enumerate(rows) if row in set(keys)]


def test_bounds_leave_out_only_what_cannot_hold_a_key() -> None:
    keys = KeySet([pa.array([10, 20])])
    assert keys.bounds() == [(10, 20)]
    assert keys.may_be_between([15], [25])
    assert not keys.may_be_between([11], [19])
    assert not keys.may_be_between([21], [30])
    assert keys.may_be_between([None], [None])
    texts = KeySet([pa.array(["b", "d"])])
    assert not texts.may_be_between(["e"], ["f"])
    assert not texts.may_be_between(["c"], ["c"])
    assert texts.may_be_between(["c"], ["d"])
    assert texts.may_be_between(["a"], ["b"])


def test_deletion_vectors_are_read_as_they_were_written(tmp_path: Path) -> None:
    deleted = {"a": BitMap64([0, 5, 2**33]), "b": BitMap64(np.arange(1000).tolist())}
    location = f"file:{tmp_path}/some folder.puffin"
    vectors, size = write_vectors(location, deleted)
    assert size == (tmp_path / "some folder.puffin").stat().st_size
    assert {v.data_file: read_vector(location, v.offset, v.length) for v in vectors} == deleted
    content = bytearray((tmp_path / "some folder.puffin").read_bytes())
    content[vectors[0].offset + 12] ^= 1
    (tmp_path / "some folder.puffin").write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        read_vector(location, vectors[0].offset, vectors[0].length)


def test_an_error_in_a_task_reaches_the_user_as_it_was() -> None:
    for error in (
        SourceUnreachable("db is gone", hint="start it"),
        ValueError("first\nboom at postgresql://u:secret@h/d"),
    ):
        with pytest.raises(Exception, match="headwater-task-error") as failed, encoded_errors():
            raise error
        translated = task_error(f"Py4J trace\n{failed.value}\nmore", "shop")
        if isinstance(error, SourceUnreachable):
            assert (type(translated), translated.message, translated.hint) == (
                SourceUnreachable,
                "db is gone",
                "start it",
            )
        else:
            assert translated.message == "shop: ValueError: boom at postgresql://u:****@h/d"
    assert (
        task_error("[DIVIDE_BY_ZERO] Division by zero.\nstack", "shop").message
        == "shop: [DIVIDE_BY_ZERO] Division by zero."
    )
