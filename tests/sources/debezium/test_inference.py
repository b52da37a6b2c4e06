"""Columns and keys that events bring: found, widened, renamed, refused; and as parts of a mark."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.model.errors import InputError, SchemaRefused
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.sources.debezium.inference import SeenRows
from headwater.sources.json.columns import observe
from headwater.testing import marks as laws
from tests.sources.debezium.reading import Stream, as_bytes, event, field, messages_of, rows, with_schema

ID = field("id", "int32")


def change(kind: dict, value: object, number: int = 1) -> dict:
    return {"value": with_schema([ID, kind], event("c", {"id": number, "v": value}))}


def seen_types(stream: Stream) -> dict[str, str]:
    return {name: kind for name, (_, kind) in stream.columns.items()}


def decimal(precision: int, scale: int) -> dict:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return field("v", "bytes", "org.apache.kafka.connect.data.Decimal", parameters=parameters)


@pytest.mark.parametrize(
    ("narrow", "wide", "before", "after"),
    [
        (field("v", "int32"), field("v", "int64"), "int", "bigint"),
        (field("v", "float"), field("v", "double"), "float", "double"),
        (decimal(9, 2), decimal(12, 2), "decimal(9,2)", "decimal(12,2)"),
        (field("v", "array", items={"type": "int32"}), field("v", "array", items={"type": "int64"}), "array<int>", "array<bigint>"),
    ],
)  # fmt: skip
def test_a_wider_type_widens_the_column_and_older_events_still_fit(narrow, wide, before, after):
    value = {"int": 7, "float": 1.5, "array<int>": [7]}.get(before, "AQ==")
    stream = Stream(key=["id"])
    stream.look(messages_of([change(narrow, value)]))
    assert seen_types(stream)["v"] == before
    both = messages_of([change(narrow, value, 1), change(wide, value, 2), change(narrow, value, 3)])
    decoded = rows(stream.poll(both))
    assert seen_types(stream)["v"] == after
    assert [row["id"] for row in decoded] == [1, 2, 3]  # in the order of the messages
    assert decoded[0]["v"] == decoded[1]["v"] == decoded[2]["v"]
    stream.look(messages_of([change(narrow, value)]))
    assert seen_types(stream)["v"] == after  # never narrower again


CHANGES = [
    (field("v", "int32"), field("v", "string"), "int", "string"),
    (decimal(9, 2), decimal(9, 3), "decimal(9,2)", "decimal(9,3)"),
    (field("v", "string"), field("v", "int32", "io.debezium.time.Date"), "string", "date"),
    (field("v", "string"), field("v", "array", items={"type": "string"}), "string", "array<string>"),
]


@pytest.mark.parametrize(("first", "second", "was", "now"), CHANGES)
def test_another_type_is_refused_with_the_table_the_column_and_both_types(first, second, was, now):
    stream = Stream(key=["id"])
    stream.look(messages_of([change(first, None)]))
    with pytest.raises(SchemaRefused) as refused:
        stream.look(messages_of([change(second, None)]))
    assert refused.value.message == f"shop.public.t: column v was {was}, and is now {now}"
    assert "type_changes: new_column" in refused.value.hint


def test_with_new_column_the_values_go_on_in_a_column_of_the_new_type():
    stream = Stream(key=["id"], type_changes="new_column")
    stream.look(messages_of([change(field("v", "int32"), 1)]))
    old, new = rows(stream.poll(messages_of([change(field("v", "int32"), 1), change(field("v", "string"), "x", 2)])))
    assert seen_types(stream) == {"id": "int", "v": "int", "v__string": "string"}
    assert (old["v"], old["v__string"]) == (1, None)
    assert (new["v"], new["v__string"]) == (None, "x")
    stream.look(messages_of([change(decimal(9, 2), "AQ==")]))
    assert seen_types(stream)["v__decimal_9_2"] == "decimal(9,2)"


def test_a_dropped_column_stays_and_a_renamed_one_is_new():
    stream = Stream(key=["id"])
    stream.look(messages_of([change(field("v", "int32"), 1)]))
    value = with_schema([ID, field("w", "int32")], event("c", {"id": 1, "w": 5}))
    (row,) = rows(stream.poll(messages_of([{"value": value}])))
    assert seen_types(stream) == {"id": "int", "v": "int", "w": "int"}
    assert (row["v"], row["w"]) == (None, 5)


def test_a_field_that_has_no_column_is_never_dropped():
    stream = Stream(key=["id"])
    stream.look(messages_of([change(field("v", "int32"), 1)]))
    decoded = stream.decode(messages_of([change(field("v", "string"), "x"), change(field("v", "string"), None)]))
    assert decoded.rejected == [(0, "v: the event has string, the column is int")]
    assert decoded.message_indices.tolist() == [1]  # nothing is lost of a NULL
    value = with_schema([ID, field("w", "int32")], event("c", {"id": 1, "w": 5}))
    decoded = stream.decode(messages_of([{"value": value}]))
    assert decoded.rejected == [(0, "w: the event has int, there is no such column")]


def test_another_key_is_refused_and_the_settings_can_insist():
    first = {"value": event("c", {"id": 1, "region": "eu"}), "key": {"id": 1}}
    second = {"value": event("c", {"id": 1, "region": "eu"}), "key": {"id": 1, "region": "eu"}}
    stream = Stream()
    stream.look(messages_of([first]))
    with pytest.raises(SchemaRefused, match="the key was id, and is now id, region"):
        stream.look(messages_of([second]))
    stream.settings = stream.settings.model_copy(update={"key": ["id"]})
    stream.look(messages_of([second]))
    assert stream.key == ("id",)


def test_a_key_that_is_no_column_is_told():
    with pytest.raises(InputError, match="uid of the key is no column"):
        Stream(key=["uid"]).look(messages_of([{"value": event("c", {"id": 1})}]))


def test_a_column_cannot_be_called_like_ours():
    with pytest.raises(InputError, match="_op"):
        Stream().look(messages_of([{"value": event("c", {"id": 1, "_op": "x"}), "key": {"id": 1}}]))


def test_a_stream_of_flattened_events_is_refused_before_anything_is_read():
    with pytest.raises(InputError, match="ExtractNewRecordState"):
        Stream().look(messages_of([{"value": {"id": 1, "name": "x"}}]))
    schema = {"type": "struct", "fields": [ID]}
    with pytest.raises(InputError, match="ExtractNewRecordState"):
        Stream().look(messages_of([{"value": {"schema": schema, "payload": {"id": 1}}}]))


def test_a_connector_whose_log_we_cannot_order_is_refused_by_name():
    with pytest.raises(InputError, match="connector for oracle"):
        Stream().look(messages_of([{"value": event("c", {"id": 1}, connector="oracle", txId="0A")}]))


def test_a_stream_of_heartbeats_has_no_columns():
    stream = Stream()
    stream.look(messages_of([{"value": {"ts_ms": 1}}, {"value": None}]))
    assert stream.columns == {}


def state_of(types):
    return StreamState(columns={name: (0, kind) for name, kind in types.items()})


TYPES = ["int", "bigint", "float", "double", "decimal(9,2)", "decimal(12,2)", "array<int>", "array<bigint>", "string"]
MARKS = st.builds(
    lambda types, at: OffsetsMark({"t": {0: at}}, {}, {"t": state_of(types)}),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from(TYPES)),
    st.integers(0, 3),
)


@given(MARKS, MARKS, MARKS)
def test_marks_whose_columns_differ_keep_the_laws(a, b, c):
    laws.check_join_is_commutative(a, b)
    laws.check_join_is_associative(a, b, c)
    laws.check_join_is_idempotent(a)


@pytest.mark.parametrize(("narrow", "wide"), [TYPES[n : n + 2] for n in (0, 2, 4, 6)])
def test_of_two_marks_the_wider_type_stays(narrow, wide):
    marks = [OffsetsMark({}, {}, {"t": state_of({"a": kind})}) for kind in (narrow, wide)]
    assert marks[0].join(marks[1]).streams["t"].types == {"a": wide}


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["2026-03-02", "2026-03-02T08:30:00Z", "1e5"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 3)),
)


def without_whole_doubles(seen_types):
    """Whole numbers that a double holds make no difference beside doubles: the column is a double either way."""
    return {name: seen - {"bigint"} if "double" in seen else seen for name, seen in seen_types.items()}


def test_a_whole_number_that_no_double_holds_is_seen_among_fractions():
    seen = SeenRows.seen([as_bytes(event("c", {"a": value}, table="t")) for value in (0.5, 2**53 + 1)])
    assert seen.seen_types == {"a": {"double", "long bigint"}}


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES), max_size=40))
@example([{"a": 0}, {"a": 0.0}])
def test_kinds_found_by_arrow_are_those_found_one_by_one(values):
    quickly = SeenRows.seen([as_bytes(event("c", row, table=f"t{n}")) for n, row in enumerate(values)])
    exactly: dict = {}
    observe([json.dumps(row).encode() for row in values], exactly)
    assert without_whole_doubles(quickly.seen_types) == without_whole_doubles(exactly)
    assert quickly.tables == {f"t{n}" for n in range(len(values))}
