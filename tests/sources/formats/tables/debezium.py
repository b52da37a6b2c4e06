"""Debezium's events: with and without schemas, recorded ones and such as databases seldom bring."""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.sources.debezium.reading import event, field, recorded, recorded_mysql, with_schema
from tests.sources.formats.case import OBJECTS, Case, Events, Records, case, defect, differs

DBZ, CONNECT = "io.debezium", "org.apache.kafka.connect.data"
ID = field("id", "int32")
KEY = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": 1}}
LOCAL = dt.datetime(2026, 3, 2, 8, 30, 0, 123456)  # noqa: DTZ001 - that is the point
MICROS = 1772440200123456
UTC = LOCAL.replace(tzinfo=dt.UTC)
BY_ID = {"debezium": {"key": ["id"]}}
LEFT_OUT = "__debezium_unavailable_value"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    return b64(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True))


def digits(precision: int, scale: int) -> dict[str, Any]:
    return {"parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


def typed(schema: Mapping[str, Any], *values: object) -> Events:
    """A row for each value, with the schema of its column."""
    fields = [ID, dict(schema)]
    return Events([{"value": with_schema(fields, event("c", {"id": n, "v": one}))} for n, one in enumerate(values)])


def exact(name: str, schema: Mapping[str, Any], written: object, ddl: str, value: object) -> Case:
    rows = [(0, value), (1, None)]
    return case(f"{name} is {ddl}", "debezium", typed(schema, written, None), rows, columns=f"id int, v {ddl}", **BY_ID)


def refused(name: str, schema: Mapping[str, Any], written: object, ddl: str, reason: str) -> Case:
    rows, columns = [(0, None), (2, None)], f"id int, v {ddl}"
    payload = typed(schema, None, written, None)
    return case(f"{name} is refused", "debezium", payload, rows, columns=columns, rejects={2: reason}, **BY_ID)


DECIMAL = f"{CONNECT}.Decimal"
TYPES = [
    exact("a boolean", field("v", "boolean"), True, "boolean", True),
    exact("int16", field("v", "int16"), -32768, "int", -32768),
    exact("int64", field("v", "int64"), -(2**63), "bigint", -(2**63)),
    exact("a float", field("v", "float"), 3.4028235e38, "float", 3.4028234663852886e38),
    exact("a float that is NaN", field("v", "float"), "NaN", "float", math.nan),
    exact("a double", field("v", "double"), 5e-324, "double", 5e-324),
    exact("a double that is infinite", field("v", "double"), "-Infinity", "double", -math.inf),
    exact("a string", field("v", "string"), "é\x00😀", "string", "é\x00😀"),
    exact("bytes", field("v", "bytes"), b64(b"\0\xff"), "binary", b"\0\xff"),
    exact("numeric(12,2)", field("v", "bytes", DECIMAL, **digits(12, 2)), unscaled(-1234), "decimal(12,2)", Decimal("-12.34")),
    exact("numeric(38,0)", field("v", "bytes", DECIMAL, **digits(38, 0)), unscaled(10**38 - 1), "decimal(38,0)", Decimal(10**38 - 1)),
    exact("numeric(50,2)", field("v", "bytes", DECIMAL, **digits(50, 2)), unscaled(10**49 + 1), "string", "1" + "0" * 46 + "0.01"),
    exact("a decimal as a number", field("v", "bytes", DECIMAL, **digits(12, 2)), 1234, "decimal(12,2)", Decimal("1234.00")),
    exact("a date", field("v", "int32", f"{DBZ}.time.Date"), 20514, "date", dt.date(2026, 3, 2)),
    exact("the first date", field("v", "int32", f"{CONNECT}.Date"), -719162, "date", dt.date(1, 1, 1)),
    exact("an ISO date", field("v", "string", f"{DBZ}.time.IsoDate"), "2026-03-02Z", "date", dt.date(2026, 3, 2)),
    exact("a time", field("v", "int64", f"{DBZ}.time.MicroTime"), 30600123456, "string", "08:30:00.123456"),
    exact("24 o'clock", field("v", "int64", f"{DBZ}.time.MicroTime"), 86400000000, "string", "24:00:00.000000"),
    exact("a negative time", field("v", "int64", f"{DBZ}.time.MicroTime"), -3020399000001, "string", "-838:59:59.000001"),
    exact("milliseconds", field("v", "int64", f"{DBZ}.time.Timestamp"), MICROS // 1000, "timestamp_ntz", LOCAL.replace(microsecond=123000)),
    exact("microseconds", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), MICROS, "timestamp_ntz", LOCAL),
    exact("nanoseconds", field("v", "int64", f"{DBZ}.time.NanoTimestamp"), MICROS * 1000, "timestamp_ntz", LOCAL),
    exact("a moment", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "2026-03-02T10:30:00.123456000+02:00", "timestamp", UTC),
    exact("JSON", field("v", "string", f"{DBZ}.data.Json"), '{"a": 1.50}', "string", '{"a": 1.50}'),
    exact("an array", field("v", "array", items={"type": "string", "optional": True}), ["a", None, ""], "array<string>", ["a", None, ""]),
    exact("an array of dates", field("v", "array", items=field("", "int32", f"{DBZ}.time.Date")), [20514, None], "array<date>", [dt.date(2026, 3, 2), None]),
    exact("a map", field("v", "map", keys={"type": "string"}, values={"type": "string", "optional": True}), {"a": None, "b": "1"}, "map<string,string>", [("a", None), ("b", "1")]),
    exact("a struct", field("v", "struct", f"{DBZ}.data.geometry.Geometry", fields=[field("wkb", "bytes"), field("srid", "int32")]), {"wkb": b64(b"\1"), "srid": 4326}, "struct<wkb binary, srid int>", {"wkb": b"\1", "srid": 4326}),
]  # fmt: skip
REFUSED = [
    refused("infinity", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), 9223372036825200000, "timestamp_ntz", "v: 9223372036825200000 cannot be kept as timestamp_ntz"),
    refused("the year 10000", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), 253402300800000000, "timestamp_ntz", "v: 253402300800000000 cannot be kept as timestamp_ntz"),
    refused("a nanosecond", field("v", "int64", f"{DBZ}.time.NanoTimestamp"), 1, "timestamp_ntz", "v: 1 cannot be kept as timestamp_ntz"),
    refused("an infinite moment", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "infinity", "timestamp", "v: infinity cannot be kept as timestamp"),
    refused("a moment before the year 1", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "-0043-03-15T00:00:00Z", "timestamp", "v: -0043-03-15T00:00:00Z cannot be kept as timestamp"),
    refused("a moment of nanoseconds", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "2026-03-02T08:30:00.123456789Z", "timestamp", "v: 2026-03-02T08:30:00.123456789Z cannot be kept as timestamp"),
    refused("a date before the year 1", field("v", "int32", f"{DBZ}.time.Date"), -719163, "date", "v: -719163 cannot be kept as date"),
    refused("a decimal of too many digits", field("v", "bytes", DECIMAL, **digits(4, 2)), unscaled(10000), "decimal(4,2)", "v: JxA= cannot be kept as decimal(4,2)"),
    refused("no base64", field("v", "bytes"), "%%%", "binary", "v: %%% cannot be kept as binary"),
    refused("a text for a number", field("v", "int32"), "1", "int", "after: v: expected a number, found the text '1'"),
    refused("a number beyond its type", field("v", "int32"), 2147483648, "int", "after: v: 2147483648 is no int32"),
    refused("a fraction", field("v", "int64"), 1.5, "bigint", "after: v: 1.5 is no int64"),
    refused("a number for a text", field("v", "string"), 1, "string", "after: v: expected a text, found 1"),
    refused("half of a surrogate pair", field("v", "string"), "\ud800", "string", "after: v: a text holds half of a surrogate pair"),
    defect(
        refused("a decimal number of too many digits", field("v", "bytes", DECIMAL, **digits(4, 2)), 1.234, "decimal(4,2)", "v: 1.234 cannot be kept as decimal(4,2)"),
        "the reason shows a sign that is not in the message",
        rejects={2: "v: =1.234 cannot be kept as decimal(4,2)"},
    ),
]  # fmt: skip


def change(schema: Mapping[str, Any], value: object) -> dict[str, Any]:
    return {"value": with_schema([ID, dict(schema)], event("c", {"id": 1, "v": value})), "key": KEY}


def plain(
    row: Mapping[str, Any] | None, op: str = "c", before: Mapping[str, Any] | None = None, **source: Any
) -> dict[str, Any]:
    """Without a schema; its key is the row's id."""
    state = row or before
    value = event(op, dict(row) if row else None, dict(before) if before else None, **source)
    return {"value": value, "key": {"id": state["id"]} if state else None}


INT, TEXT = field("v", "int32"), field("v", "string")
COLUMNS = [
    case(
        "another type is refused",
        "debezium",
        [Events([change(INT, 5)]), Events([change(TEXT, "x")])],
        error="column v was int, and is now string",
    ),
    case(
        "two types in one window are refused",
        "debezium",
        Events([change(INT, 5), change(TEXT, "x")]),
        error="column v was int, and is now string",
    ),
    case(
        "another type is a column of its own, as the settings say",
        "debezium",
        [
            Events([change(INT, 5)]),
            Events([change(TEXT, "x"), change(INT, 6), change(field("v", "bytes", DECIMAL, **digits(5, 2)), unscaled(5))]),
        ],
        [(1, None, "x", None), (1, 6, None, None), (1, None, None, Decimal("0.05"))],
        columns="id int, v int, v__string string, v__decimal_5_2 decimal(5,2)",
        debezium={"type_changes": "new_column"},
    ),
    case(
        "two types in one window are two columns, as the settings say",
        "debezium",
        Events([change(INT, 5), change(TEXT, "x")]),
        [(1, 5, None), (1, None, "x")],
        columns="id int, v int, v__string string",
        debezium={"type_changes": "new_column"},
    ),
    case(
        "a wider type widens the column",
        "debezium",
        [Events([change(INT, 5)]), Events([change(field("v", "int64"), 2**40), change(INT, 6)])],
        [(1, 2**40), (1, 6)],
        columns="id int, v bigint",
    ),
    case(
        "more digits widen the column",
        "debezium",
        [
            Events([change(field("v", "bytes", DECIMAL, **digits(5, 2)), unscaled(5))]),
            Events([change(field("v", "bytes", DECIMAL, **digits(9, 2)), unscaled(10**8))]),
        ],
        [(1, Decimal("1000000.00"))],
        columns="id int, v decimal(9,2)",
    ),
    case(
        "another scale is another type",
        "debezium",
        Events([
            change(field("v", "bytes", DECIMAL, **digits(5, 2)), unscaled(5)),
            change(field("v", "bytes", DECIMAL, **digits(5, 3)), unscaled(5)),
        ]),
        error="column v was decimal(5,2), and is now decimal(5,3)",
    ),
    case(
        "without schemas columns are those of JSON",
        "debezium",
        Events([plain({"id": 1, "v": 1, "f": 1.5, "s": "x", "b": True, "j": {"a": [1]}, "n": None}), plain({"id": 2, "v": 2**63})]),
        [(1, "1", 1.5, "x", True, '{"a":[1]}'), (2, "9223372036854775808", None, None, None, None)],
        columns="id bigint, v string, f double, s string, b boolean, j string",
    ),
    case(
        "without schemas later values that do not fit are rejects",
        "debezium",
        [Events([plain({"id": 1, "v": 1})]), Events([plain({"id": 2, "v": "x"}), plain({"id": 3, "v": 7})])],
        [(3, 7)],
        columns="id bigint, v bigint",
        rejects={1: "after: v: expected a number, found the text 'x'"},
    ),
    case(
        "declared columns over events without schemas",
        "debezium",
        Events([
            plain({"id": 1, "d": "12.34", "u": 1, "at": "2026-03-02T08:30:00.123456Z"}),
            plain({"id": 2, "d": "1.234"}),
            plain({"id": 2**31}),
        ]),
        [(1, Decimal("12.34"), UTC)],
        schema="id int, d decimal(10,2), at timestamp",
        rejects={2: "d: 1.234 cannot be kept as decimal(10,2)", 3: "after: id: 2147483648 is no int32"},
        debezium={"decimals": "text"},
    ),
    case(
        "names that differ in case are refused",
        "debezium",
        Events([plain({"id": 1, "ID": 1})]),
        error="fields that cannot be columns beside each other: id, ID",
    ),
    case(
        "a name of ours is refused",
        "debezium",
        Events([plain({"id": 1, "_op": 1})]),
        error="fields that cannot be columns beside each other: _op, _op",
    ),
    case(
        "a key that is no column is refused",
        "debezium",
        Events([plain({"id": 1})]),
        error="nope of the key is no column",
        debezium={"key": ["nope"]},
    ),
    case(
        "another key is refused",
        "debezium",
        [Events([plain({"id": 1, "v": 1})]), Events([{**plain({"id": 1, "v": 1}), "key": {"v": 1}}])],
        error="the key was id, and is now v",
    ),
    defect(
        case(
            "two keys in one window are refused without schemas, too",
            "debezium",
            Events([plain({"id": 1, "v": 1}), {**plain({"id": 1, "v": 1}), "key": {"v": 1}}]),
            error="two keys in one window: id and v",
        ),
        "only the first key of messages without schemas is looked at",
        error="",
        columns="id bigint, v bigint",
        rows=[(1, 1), (1, 1)],
    ),
    case(
        "a connector that nobody can order is refused",
        "debezium",
        Events([plain({"id": 1}, connector="oracle")]),
        error="events of Debezium's connector for oracle cannot be ordered",
    ),
]  # fmt: skip
FLAT = "no change event: it has neither `op` nor `source`, as flattened ones; take the transform ExtractNewRecordState out of the connector"
GOOD = (
    b'{"before":null,"after":{"id":1},"source":{"connector":"postgresql","sequence":"[null,\\"1\\"]","lsn":1},"op":"c"}'
)
CHANGES = [
    case(
        "inserts, deletes, tombstones and truncations",
        "debezium",
        Events([
            plain({"id": 1, "v": "x"}),
            plain(None, "d", {"id": 1, "v": "invented"}),
            {"value": None, "key": {"id": 1}},
            plain(None, "t"),
        ]),
        [("c", 1, "x"), ("d", 1, None), ("t", None, None)],
        columns="id bigint, v string",
        shows=("_op", "id", "v"),
    ),
    case(
        "values that were left out are named",
        "debezium",
        Events([plain({"id": 1, "v": LEFT_OUT, "w": "x"}, "u"), plain({"id": 2, "v": "y", "w": None}, "u")]),
        [(1, None, "x", ["v"]), (2, "y", None, None)],
        columns="id bigint, v string, w string",
        shows=("id", "v", "w", "_missing"),
    ),
    case(
        "a change of key has the former one",
        "debezium",
        Events([{**plain({"id": 2}), "headers": [["__debezium.oldkey", '{"id":1}']]}]),
        [("c", 2, "[1]")],
        columns="id bigint",
        shows=("_op", "id", "_old_key"),
    ),
    case(
        "heartbeats are no rows",
        "debezium",
        Events([{"value": {"ts_ms": 1}}, plain({"id": 1})]),
        [(1,)],
        columns="id bigint",
        **BY_ID,
    ),
    differs(
        case("nothing but heartbeats", "debezium", Events([{"value": {"ts_ms": 1}}]), columns="", **BY_ID),
        OBJECTS,
        "with a key in the settings and no column yet the read ends in an error of ours",
        defect=True,
        error="crash: KeyError: 'id'",
    ),
    case(
        "flattened events are rejects",
        "debezium",
        Events([{"value": {"id": 1, "name": "x"}}, plain({"id": 1})]),
        [(1,)],
        columns="id bigint",
        rejects={1: FLAT},
        **BY_ID,
    ),
    case(
        "nothing but flattened events is refused",
        "debezium",
        Events([{"value": {"id": 1, "name": "x"}}]),
        error=f"no Debezium event in the window: {FLAT}",
        **BY_ID,
    ),
    case(
        "what should be an event and is none is a reject",
        "debezium",
        Records(GOOD, b"oops", b'{"op":"x","source":{},"after":{}}', b"[]", b"null"),
        [(1,)],
        schema="id bigint",
        rejects={
            2: "no JSON: Expecting value at character 0",
            3: "op: 'x' is not one of c, u, d, r, t",
            4: "expected an object, found an array",
        },
        **BY_ID,
    ),
    case(
        "an event without a position in the log is a reject",
        "debezium",
        Events([plain({"id": 1}, sequence="nonsense"), plain({"id": 2})]),
        [(2,)],
        schema="id bigint",
        rejects={1: "source: no position in the log in …"},
        **BY_ID,
    ),
]  # fmt: skip
ORDERS = [
    ("r", 2, "c2", "12.34"), ("r", 1, "c1", "12.34"), ("r", 3, "c3", "12.34"), ("c", 4, "c4", "12.34"),
    ("u", 4, "c4", "99.90"), ("d", 4, None, None), ("d", 3, None, None), ("c", 30, "c3", "12.34"),
    ("c", 1, "c1", "12.34"), ("c", 3, "c3", "12.34"), ("c", 2, "c2", "12.34"), ("r", 2, "c2", "12.34"),
    ("r", 1, "c1", "12.34"), ("r", 3, "c3", "12.34"), ("u", 2, "upd", "12.34"), ("r", 3, "c3", "12.34"),
    ("r", 1, "c1", "12.34"), ("r", 3, "c3", "12.34"), ("r", 2, "upd", "12.34"), ("c", 10, "c10", "12.34"),
    ("c", 11, "c11", "12.34"), ("u", 10, "c10", "1.00"), ("c", 102, "copy", None), ("c", 100, "copy", None),
    ("c", 101, "copy", None), ("c", 201, "newcol", None), ("u", 200, "toast2", None), ("d", 200, None, None),
]  # fmt: skip
THINGS = [
    ("r", 1, -32768, None), ("r", 2, None, None), ("c", 3, -32768, None), ("c", 4, -32768, None), ("c", 5, None, None),
    ("u", 1, 7, None), ("u", 3, 7, None), ("d", 5, None, None), ("c", 50, None, "[5]"), ("d", 4, None, None),
    ("c", 6, 1, None), ("u", 6, 2, None), ("u", 6, 3, None), ("c", 7, 1, None), ("c", 8, 1, None), ("u", 7, 2, None),
    ("u", 7, 3, None), ("d", 8, None, None), ("u", 6, 4, None), ("r", 1, 7, None), ("r", 2, None, None),
    ("r", 3, 7, None), ("r", 6, 4, None), ("r", 7, 3, None), ("r", 50, None, None), ("t", None, None, None),
    ("c", 9, None, None),
]  # fmt: skip
RECORDED = [
    case(
        "PostgreSQL without schemas, as recorded",
        "debezium",
        Events(recorded()),
        ORDERS,
        columns="id bigint, customer string, amount string, ratio double, active boolean, day bigint, created string, "
        "ts bigint, payload string, tags string, raw string, uid string, big string, extra bigint",
        shows=("_op", "id", "customer", "amount"),
    ),
    case(
        "PostgreSQL without schemas, as recorded, in declared columns",
        "debezium",
        Events(recorded()[3:4]),
        [(4, "c4", Decimal("12.34"), dt.date(2026, 1, 2), dt.datetime(2026, 11, 16, 2, 44, 3, 859914, dt.UTC),
          dt.datetime(2026, 1, 2, 3, 4, 5, 678901), ["x", "y"], b"\xde\xad\xbe\xef")],  # noqa: DTZ001 - that is the point
        schema="id bigint, customer string, amount decimal(12,2), day date, created timestamp, ts timestamp_ntz, "
        "tags array<string>, raw binary",
        debezium={"decimals": "text"},
    ),
    case(
        "MySQL with schemas, as recorded",
        "debezium",
        Events(recorded_mysql("transactions")),
        THINGS,
        columns="id int, flag int, t int, tu int, s int, su int, m int, mu int, i int, iu bigint, b bigint, bu bigint, "
        "f float, d double, n decimal(12,3), wide string, bit1 boolean, bits binary, c string, v string, txt string, "
        "bin binary, vb binary, bl binary, e string, st string, js string, y int, day date, tm string, tm6 string, "
        "dt0 timestamp_ntz, dt3 timestamp_ntz, dt6 timestamp_ntz, at timestamp, "
        "p struct<x double, y double, wkb binary, srid int>, g struct<wkb binary, srid int>, vec array<float>, extra int",
        shows=("_op", "id", "s", "_old_key"),
    ),
]  # fmt: skip
CASES = [*TYPES, *REFUSED, *COLUMNS, *CHANGES, *RECORDED]
