"""Events taken apart: keys, values that were left out, positions, and what is no event."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import uuid

import pytest

from headwater.model.rows import position
from headwater.sources.debezium.envelope import FLATTENED, OLD_KEY_HEADER, Messages
from tests.sources.debezium.reading import SOURCE, Stream, event, field, messages_of, rows, with_schema

LEFT_OUT = "__debezium_unavailable_value"
BYTES = LEFT_OUT.encode()
BASE64 = base64.b64encode(BYTES).decode()
UUID = str(uuid.UUID(bytes=hashlib.md5(BYTES, usedforsecurity=False).digest(), version=3))
ID = field("id", "int64")


def texts() -> dict:
    return {"type": "string", "optional": True}


LEFT_OUT_FORMS = [
    (field("v", "string"), LEFT_OUT),
    (field("v", "string", "io.debezium.data.Json"), LEFT_OUT),
    (field("v", "string", "io.debezium.data.Json"), f'{{"{LEFT_OUT}":"{LEFT_OUT}"}}'),
    (field("v", "bytes"), BASE64),
    (field("v", "string"), BASE64),
    (field("v", "string"), BYTES.hex()),
    (field("v", "array", items=texts()), [LEFT_OUT]),
    (field("v", "array", items={"type": "bytes"}), [BASE64]),
    (field("v", "array", items=texts()), [UUID]),
    (field("v", "array", items={"type": "int32"}), list(BYTES)),
    (field("v", "array", items={"type": "int64"}), list(BYTES)),
    (field("v", "map", keys={"type": "string"}, values=texts()), {LEFT_OUT: LEFT_OUT}),
]


@pytest.mark.parametrize(("schema", "written"), LEFT_OUT_FORMS)
def test_a_value_that_was_left_out_is_named_in_every_type(schema, written):
    events = [
        {"value": with_schema([ID, schema], event("u", {"id": n, "v": v}))} for n, v in enumerate([None, written])
    ]
    none, left_out = rows(Stream(key=["id"]).poll(messages_of(events)))
    assert (none["v"], none["_missing"]) == (None, None)
    assert (left_out["v"], left_out["_missing"]) == (None, ["v"])


@pytest.mark.parametrize("written", [LEFT_OUT, BASE64, [LEFT_OUT], list(BYTES), {LEFT_OUT: LEFT_OUT}])
def test_without_schemas_too(written):
    events = [
        {"value": event("u", {"id": 1, "a": "x", "v": written})},
        {"value": event("u", {"id": 2, "a": "y", "v": "z"})},
    ]
    first, second = rows(Stream(key=["id"]).poll(messages_of(events)))
    assert (first["v"], first["_missing"]) == (None, ["v"])
    assert (second["v"], second["_missing"]) == ("z", None)


def test_the_placeholder_is_a_setting():
    value = with_schema([ID, field("v", "string")], event("u", {"id": 1, "v": "?"}))
    (row,) = rows(Stream(key=["id"], unavailable="?").poll(messages_of([{"value": value}])))
    assert (row["v"], row["_missing"]) == (None, ["v"])


def test_the_key_of_a_delete_is_its_messages_and_nothing_else_is_filled():
    # Under REPLICA IDENTITY DEFAULT `before` holds invented values beside the key.
    old = {"id": 1, "at": 0, "name": ""}
    fields = [ID, field("at", "int64", "io.debezium.time.MicroTimestamp"), field("name", "string")]
    value = with_schema(fields, event("d", None, old))
    key = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": 1}}
    for written in (key, {"id": 1}):
        (row,) = rows(Stream().poll(messages_of([{"value": value, "key": written}])))
        assert (row["id"], row["at"], row["name"]) == (1, None, None)
    (row,) = rows(Stream(key=["id"]).poll(messages_of([{"value": value}])))
    assert (row["id"], row["at"], row["name"]) == (1, None, None)


def test_deletes_with_and_without_message_keys_may_be_mixed():
    events = [{"value": event("d", None, {"id": n}), "key": {"id": n} if n % 2 else None} for n in range(6)]
    assert [row["id"] for row in rows(Stream().poll(messages_of(events)))] == list(range(6))


def test_a_delete_without_a_key_is_a_reject():
    events = [{"value": event("c", {"id": 1})}, {"value": event("d", None, None)}]
    decoded = Stream(key=["id"]).poll(messages_of(events))
    assert decoded.rejected == [(1, "a delete without a key")]


def test_a_table_without_a_key_keeps_what_before_says():
    events = [{"value": event("c", {"a": 1, "b": "x"})}, {"value": event("d", None, {"a": 1, "b": "x"})}]
    stream = Stream()
    decoded = rows(stream.poll(messages_of(events)))
    assert stream.key == ()
    assert [(row["_op"], row["a"], row["b"]) for row in decoded] == [("c", 1, "x"), ("d", 1, "x")]


def test_a_key_of_several_columns_keeps_the_order_of_its_message():
    fields = [field("b", "string"), field("a", "int32", "io.debezium.time.Date"), field("c", "int32")]
    key = {"schema": {"type": "struct", "fields": [fields[1], fields[0]]}, "payload": {"a": 20514, "b": "x"}}
    old = json.dumps({**key, "payload": {"a": 20513, "b": "w"}})
    value = with_schema(fields, event("c", {"a": 20514, "b": "x", "c": 1}))
    stream = Stream()
    (row,) = rows(stream.poll(messages_of([{"value": value, "key": key, "headers": [[OLD_KEY_HEADER, old]]}])))
    assert stream.key == ("a", "b")
    assert row["a"] == dt.date(2026, 3, 2)
    assert json.loads(row["_old_key"]) == ["2026-03-01", "w"]


def test_a_truncation_has_no_key():
    events = [{"value": event("c", {"id": 1})}, {"value": event("t", None)}]
    decoded = rows(Stream(key=["id"]).poll(messages_of(events)))
    assert [(row["_op"], row["id"]) for row in decoded] == [("c", 1), ("t", None)]


NOTHING = [
    {"ts_ms": 1},
    {"ts_ms": 1, "ts_us": 1, "ts_ns": 1},
    {"status": "BEGIN", "id": "1:2", "event_count": None, "data_collections": None, "ts_ms": 1},
    {"source": {"file": "b.1"}, "databaseName": "shop", "ddl": "CREATE TABLE t (a int)", "tableChanges": []},
    {"op": "m", "source": SOURCE, "message": {"prefix": "p", "content": "AA=="}, "ts_ms": 1},
]


@pytest.mark.parametrize("other", NOTHING)
def test_what_is_no_change_of_a_row_is_none_and_no_reject(other):
    struct = {"type": "struct", "fields": [{"type": "string", "field": name} for name in other]}
    good = {"value": event("c", {"id": 1})}
    for value in (other, {"schema": struct, "payload": other}):
        decoded = Stream(key=["id"]).poll(messages_of([{"value": value}, good]))
        assert decoded.rejected == []
        assert decoded.message_indices.tolist() == [1]


@pytest.mark.parametrize("empty", [b"null", b'{"schema":null,"payload":null}', None])
def test_tombstones_are_no_rows(empty):
    stream = Stream(key=["id"])
    stream.look(messages_of([{"value": event("c", {"id": 1})}]))
    decoded = stream.decode(Messages([empty], lambda _: b'{"id":1}', lambda _: None))
    assert (decoded.rows.num_rows, decoded.rejected) == (0, [])


@pytest.mark.parametrize("flat", [{"id": 1, "name": "x"}, {"id": 1, "__op": "c", "__deleted": "false"}])
def test_flattened_events_are_told(flat):
    events = [{"value": flat}, {"value": event("c", {"id": 1})}]
    decoded = Stream(key=["id"]).poll(messages_of(events))
    assert decoded.rejected == [(0, FLATTENED)]
    schema = {"type": "struct", "fields": [field(name, "string") for name in flat]}
    decoded = Stream("id bigint", key=["id"]).poll(messages_of([{"value": {"schema": schema, "payload": flat}}]))
    assert decoded.rejected == [(0, FLATTENED)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x00\x00\x00\x00\x01", "no JSON: Expecting value at character 0"),
        (b"[]", "expected an object, found an array"),
        (b'{"op":"x","source":{},"after":{}}', "op: 'x' is not one of c, u, d, r, t"),
        (b'{"op":"u","source":{"connector":"postgresql","sequence":"[null,\\"1\\"]"},"after":null}', "an event without `after`"),
    ],
)  # fmt: skip
def test_what_should_be_an_event_and_is_none_is_a_reject(value, reason):
    stream = Stream("id bigint", key=["id"])
    decoded = stream.poll(Messages([value], lambda _: None, lambda _: None))
    assert decoded.rejected == [(0, reason)]


def placed(op: str = "c", **source: object) -> int:
    (row,) = rows(Stream("id bigint", key=["id"]).poll(messages_of([{"value": event(op, {"id": 1}, **source)}])))
    return int(row["_position"])


def test_positions_of_postgresql():
    assert placed() == position(100, 401)
    assert placed(sequence='[null,"200"]') == position(200, 401)
    assert placed("r", sequence='["100","100"]', lsn=None) == position(100, 0)
    assert placed(sequence=None) == position(200, 401)  # connectors before 1.7
    most = 2**62 - 1
    assert placed(sequence=f'["{2**63 - 1}","{most}"]', lsn=most) == position(2**63 - 1, 2 * most + 1)


def test_positions_of_mysql():
    source = {"connector": "mysql", "file": "mysql-bin.000003", "pos": 154, "row": 2, "sequence": None, "lsn": None}
    assert placed("u", **source) == position((3 << 40) + 154, 5)
    assert placed("r", **source) == position((3 << 40) + 154, 4)
    assert placed("u", **source | {"file": "mysql-bin.000010", "pos": 4}) > placed("u", **source)


@pytest.mark.parametrize(
    "source",
    [
        {"sequence": "[null,null]"},
        {"sequence": "nonsense"},
        {"sequence": '["99999999999999999999","1"]'},
        {"lsn": 2**62},
        {"lsn": -1},
        {"connector": "mysql", "file": "binlog", "pos": 1},
        {"connector": "mysql", "file": "b.000001", "pos": None},
        {"connector": "mysql", "file": "b.000001", "pos": 1 << 40},
    ],
)
def test_an_event_without_a_place_in_the_log_is_a_reject(source):
    decoded = Stream("id bigint", key=["id"]).poll(messages_of([{"value": event("c", {"id": 1}, **source)}]))
    ((_, reason),) = decoded.rejected
    assert reason.startswith("source: no position in the log")


def test_mysql_deletes_of_one_place_are_read_where_no_column_of_theirs_is_known():
    source = {"connector": "mysql", "file": "b.000001", "pos": 7, "row": 0}
    schema = [field("other", "int32")]
    events = [
        {"key": {"id": number}, "value": with_schema(schema, event("d", None, {"other": number}, **source))}
        for number in (1, 2)
    ]
    decoded = rows(Stream("id bigint", key=["id"]).poll(messages_of(events)))
    assert [(row["id"], row["_op"]) for row in decoded] == [(1, "d"), (2, "d")]


def test_a_batch_may_hold_events_of_two_connectors_and_refuses_others_by_name():
    mysql = {"connector": "mysql", "file": "b.000001", "pos": 7, "row": 0, "gtid": "u:1"}
    events = [
        {"value": event("c", {"id": 1})},
        {"value": event("c", {"id": 2}, **mysql, txId=None)},
        {"value": event("c", {"id": 3}, connector="oracle", txId="0A00")},
    ]
    stream = Stream("id bigint", key=["id"])
    stream.look(messages_of(events[:2]))
    decoded = stream.decode(messages_of(events))
    decoded_rows = decoded.rows.to_pylist()
    assert [int(row["_position"]) for row in decoded_rows] == [position(100, 401), position((1 << 40) + 7, 1)]
    assert [row["_transaction"] for row in decoded_rows] == ["7", "u:1"]
    assert decoded.rejected == [
        (2, "source: events of oracle cannot be ordered, only those of postgresql, mysql, mariadb")
    ]


DECLARED = "id int, d decimal(10,2), n timestamp_ntz, day date, raw binary, at timestamp"


@pytest.mark.parametrize(
    ("settings", "row"),
    [
        ({}, {"d": "BNI=", "n": 1772440200123456, "day": 20514, "raw": "AP8="}),
        ({"decimals": "text"}, {"d": "12.34", "n": 1772440200123456, "day": 20514, "raw": "AP8="}),
        ({"decimals": "text"}, {"d": 12.34, "n": 1772440200123456, "day": 20514, "raw": "AP8="}),
        ({"times": "millis"}, {"d": "BNI=", "n": 1772440200123, "day": 20514, "raw": "AP8="}),
        ({"times": "nanos"}, {"d": "BNI=", "n": 1772440200123456000, "day": 20514, "raw": "AP8="}),
        ({"times": "iso"}, {"d": "BNI=", "n": "2026-03-02T08:30:00.123456Z", "day": "2026-03-02Z", "raw": "AP8="}),
        ({"binary": "hex"}, {"d": "BNI=", "n": 1772440200123456, "day": 20514, "raw": "00ff"}),
        ({"binary": "base64url"}, {"d": "BNI=", "n": 1772440200123456, "day": 20514, "raw": "AP8="}),
    ],
)
def test_declared_columns_over_events_without_schemas(settings, row):
    value = event("c", {"id": 1, "at": "2026-03-02T08:30:00Z", **row})
    (decoded,) = rows(Stream(DECLARED, key=["id"], **settings).poll(messages_of([{"value": value}])))
    micros = 123000 if settings.get("times") == "millis" else 123456
    assert str(decoded["d"]) == "12.34"
    assert decoded["n"] == dt.datetime(2026, 3, 2, 8, 30, 0, micros)  # noqa: DTZ001 - that is the point
    assert (decoded["day"], decoded["raw"]) == (dt.date(2026, 3, 2), b"\0\xff")


def test_each_column_may_have_its_own_unit():
    value = event("c", {"id": 1, "a": 1772440200123, "b": 1772440200123456, "c": "2026-03-02T08:30:00.123456Z"})
    ddl = "id int, a timestamp_ntz, b timestamp_ntz, c timestamp_ntz"
    (row,) = rows(Stream(ddl, key=["id"], times={"a": "millis", "c": "iso"}).poll(messages_of([{"value": value}])))
    exact = dt.datetime(2026, 3, 2, 8, 30, 0, 123456)  # noqa: DTZ001 - that is the point
    assert (row["a"], row["b"], row["c"]) == (exact.replace(microsecond=123000), exact, exact)


def test_declared_columns_over_events_with_schemas():
    fields = [field("id", "int64"), field("d", "string"), field("raw", "string"), field("other", "string")]
    value = with_schema(fields, event("c", {"id": 1, "d": "12.34", "raw": "00ff", "other": "x"}))
    stream = Stream("id int, d decimal(10,2), raw binary", key=["id"], binary="hex")
    (row,) = rows(stream.poll(messages_of([{"value": value}])))
    assert (row["id"], str(row["d"]), row["raw"]) == (1, "12.34", b"\0\xff")
    assert "other" not in row
    decoded = stream.poll(messages_of([{"value": with_schema(fields, event("c", {"id": 2**31, "d": "1.234"}))}]))
    ((_, reason),) = decoded.rejected
    assert reason == "id: 2147483648 cannot be kept as int"
