"""Avro: types and logical types, in files that carry their schema and in messages that do not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from tests.sources.formats.case import KAFKA, OBJECTS, AvroRecords, Case, File, Records, case, defect, differs

MOMENT = dt.datetime(2026, 3, 2, 8, 0, 0, 123000, tzinfo=dt.UTC)
MICROS = MOMENT.replace(microsecond=123456)
STATE = {"type": "enum", "name": "state", "symbols": ["NEW", "PAID"]}
PLACE = {"type": "record", "name": "place", "fields": [{"name": "city", "type": ["null", "string"]}]}


def logical(name: str, kind: str = "long", **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def exact(name: str, avro: Any, value: Any, ddl: str, row: Any = None) -> Case:
    """The value, and the row that it gives, if that is another one."""
    return case(
        name, "avro", AvroRecords({"a": avro}, [{"a": value}]), [(value if row is None else row,)], columns=f"a {ddl}"
    )


TYPES = [
    exact("boolean", "boolean", True, "boolean"),
    exact("int", "int", -(2**31), "int"),
    exact("long", "long", 2**63 - 1, "bigint"),
    exact("float", "float", 0.5, "float"),
    exact("double", "double", 0.1, "double"),
    exact("a double that is NaN", "double", float("nan"), "double"),
    exact("a double that is infinite", "double", float("-inf"), "double"),
    exact("-0.0", "double", -0.0, "double"),
    exact("bytes", "bytes", b"\x00\xff", "binary"),
    exact("string", "string", "é😀\x00", "string"),
    exact("an empty string", "string", "", "string"),
    exact("enum", STATE, "PAID", "string"),
    exact("array", {"type": "array", "items": ["null", "string"]}, ["a", None], "array<string>"),
    exact("an empty array", {"type": "array", "items": ["null", "int"]}, [], "array<int>"),
    exact(
        "map",
        {"type": "map", "values": ["null", "int"]},
        {"x": 1, "y": None},
        "map<string,int>",
        [("x", 1), ("y", None)],
    ),
    exact("record", PLACE, {"city": "Köln"}, "struct<city string>"),
    exact("a union with null", ["null", "long"], 5, "bigint"),
    exact("decimal in bytes", logical("decimal", "bytes", precision=9, scale=2), Decimal("12.30"), "decimal(9,2)"),
    exact("a negative decimal", logical("decimal", "bytes", precision=9, scale=2), Decimal("-0.01"), "decimal(9,2)"),
    exact(
        "a decimal of 38 digits",
        logical("decimal", "bytes", precision=38, scale=2),
        Decimal("9" * 36 + ".99"),
        "decimal(38,2)",
    ),
    exact("date", logical("date", "int"), dt.date(2026, 3, 2), "date"),
    exact("the first date", logical("date", "int"), dt.date(1, 1, 1), "date"),
    exact("the last date", logical("date", "int"), dt.date(9999, 12, 31), "date"),
    exact("timestamp-millis", logical("timestamp-millis"), MOMENT, "timestamp"),
    exact("timestamp-micros", logical("timestamp-micros"), MICROS, "timestamp"),
    exact("local-timestamp-millis", logical("local-timestamp-millis"), MOMENT.replace(tzinfo=None), "timestamp_ntz"),
    exact("local-timestamp-micros", logical("local-timestamp-micros"), MICROS.replace(tzinfo=None), "timestamp_ntz"),
    exact("uuid", logical("uuid", "string"), "0a0a0a0a-0000-0000-0000-000000000000", "string"),
    exact("an unknown logical type", logical("money", "string"), "5", "string"),
]
NULLABLE = "messages tell inside of a column what cannot be NULL; files do not"
TIME = "a time of day is a text in files, and Arrow's time in messages, which DDL has no word for"
DIFFERENT = [
    differs(
        exact(
            "record of required fields", {**PLACE, "fields": [{"name": "n", "type": "int"}]}, {"n": 1}, "struct<n int>"
        ),
        KAFKA,
        NULLABLE,
        columns="a struct<n int NOT NULL>",
    ),
    differs(
        exact("fixed", {"type": "fixed", "name": "f", "size": 3}, b"abc", "binary"),
        KAFKA,
        "messages say how many bytes a fixed has; files do not",
        columns="a fixed_size_binary[3]",
    ),
    differs(
        exact("time-millis", logical("time-millis", "int"), dt.time(8, 0, 0, 5000), "string", "08:00:00.005"),
        KAFKA,
        TIME,
        defect=True,
        columns="a time64[us]",
        rows=[(dt.time(8, 0, 0, 5000),)],
    ),
    differs(
        exact("time-micros", logical("time-micros"), dt.time(8, 0, 0, 5), "string", "08:00:00.000005"),
        KAFKA,
        TIME,
        defect=True,
        columns="a time64[us]",
        rows=[(dt.time(8, 0, 0, 5),)],
    ),
    differs(
        case(
            "timestamp-nanos",
            "avro",
            AvroRecords({"n": "int", "a": logical("timestamp-nanos")}, [{"n": 1, "a": 1000}, {"n": 2, "a": 1500}]),
            [(1, dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC))],
            columns="n int, a timestamp",
            rejects={2: "a: Casting from timestamp[ns, tz=UTC] to timestamp[us, tz=UTC] would lose data: 1500"},
        ),
        KAFKA,
        "messages with nanoseconds are refused as a whole",
        error="a: timestamp-nanos cannot be kept exactly",
    ),
]
CAST = "Casting from timestamp[ns, tz=UTC] to timestamp[us, tz=UTC] would lose data: 1500"
DEFECTS = [
    differs(
        defect(
            case(
                "a time before a day",
                "avro",
                AvroRecords({"a": logical("time-millis", "int")}, [{"a": -1}]),
                columns="a string",
                rejects={1: "a: -1 is no time of day"},
            ),
            "Arrow's words for a value that it cannot show land as the value",
            rows=[("<value out of range: -1>",)],
            rejects={},
        ),
        KAFKA,
        "fastavro makes another time of it, which lands",
        defect=True,
        columns="a time64[us]",
        rows=[(dt.time(0, 0, 0, 999000),)],
        rejects={},
    ),
    differs(
        defect(
            case(
                "a time beyond a day",
                "avro",
                AvroRecords({"a": logical("time-micros")}, [{"a": 86400000000}]),
                columns="a string",
                rejects={1: "a: 86400000000 is no time of day"},
            ),
            "Arrow's words for a value that it cannot show land as the value",
            rows=[("<value out of range: 86400000000>",)],
            rejects={},
        ),
        KAFKA,
        "a reject, with Python's reason, and Arrow's type of time",
        defect=True,
        columns="a time64[us]",
        rejects={1: "no Avro of this schema: ValueError hour must be in 0..23"},
    ),
    differs(
        defect(
            exact(
                "a UUID in fixed bytes",
                {"type": "fixed", "name": "f", "size": 16, "logicalType": "uuid"},
                b"0" * 16,
                "string",
                "30303030-3030-3030-3030-303030303030",
            ),
            "a UUID is a text in strings, and bytes here",
            columns="a binary",
            rows=[(b"0" * 16,)],
        ),
        KAFKA,
        "how Python writes bytes lands as the UUID",
        defect=True,
        rows=[("b'0000000000000000'",)],
    ),
    differs(
        exact("a text that is no UUID", logical("uuid", "string"), "not a uuid", "string"),
        KAFKA,
        "messages check what a UUID looks like, files do not",
        rows=[],
        rejects={1: "no Avro of this schema: ValueError badly formed hexadecimal UUID string"},
    ),
    differs(
        defect(
            case(
                "nanoseconds in an array",
                "avro",
                AvroRecords(
                    {"a": {"type": "array", "items": logical("timestamp-nanos")}}, [{"a": [1000]}, {"a": [1500]}]
                ),
                [([dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)],)],
                columns="a array<timestamp>",
                rejects={2: f"a: {CAST}"},
            ),
            "Arrow casts all items of a list, also those outside of a slice: good rows beside a bad one are rejects",
            rows=[],
            rejects={1: f"a: {CAST}", 2: f"a: {CAST}"},
        ),
        KAFKA,
        "messages with nanoseconds are refused as a whole",
        error="a[]: timestamp-nanos cannot be kept exactly",
    ),
    differs(
        case(
            "names that differ in case",
            "avro",
            AvroRecords({"id": "int", "ID": "int"}, [{"id": 1, "ID": 2}]),
            columns="",
            rejects={None: "columns with empty or ambiguous names: 'id', 'ID'"},
        ),
        KAFKA,
        "messages are not refused although no table can have such columns",
        defect=True,
        columns="id int, ID int",
        rows=[(1, 2)],
        rejects={},
    ),
    differs(
        case(
            "a decimal with more digits than it declares",
            "avro",
            AvroRecords({"a": logical("decimal", "bytes", precision=3, scale=0)}, [{"a": b"\x01"}, {"a": b"\x7f\xff"}]),
            [(Decimal(1),)],
            columns="a decimal(3,0)",
            rejects={
                2: "a: Decimal type with precision 5 does not fit into precision inferred from first array element: 3"
            },
        ),
        OBJECTS,
        "the reason does not name the column",
        defect=True,
        rejects={2: "Decimal type with precision 5 does not fit into precision inferred from first array element: 3"},
    ),
]
REFUSED = "files fail one by one with the reason, messages all at once before they are read"
UNKEPT = [
    differs(
        case(
            name,
            "avro",
            AvroRecords({"a": kind}, [{"a": value}]),
            columns="",
            rejects={None: f"its schema: a: {reason}"},
        ),
        KAFKA,
        REFUSED,
        error=f"a: {reason}",
    )
    for name, kind, value, reason in (
        ("a union of several types", ["int", "string"], 1, "a union of several types is no column"),
        (
            "a decimal of 50 digits",
            logical("decimal", "bytes", precision=50, scale=0),
            Decimal(1),
            "at most 38 digits can be kept",
        ),
    )
]
FAR = [
    defect(
        case(
            f"{name} in the year 10000",
            "avro",
            AvroRecords({"a": logical(name, kind)}, [{"a": number}]),
            columns=f"a {ddl}",
            rejects={1: "a: a year outside of 1 to 9999"},
        ),
        "files keep a year outside of 1 to 9999; messages call such a record no Avro",
        rows=[(today,)],
        rejects={},
    )
    for name, kind, number, ddl, today in (
        ("timestamp-micros", "long", 253402300800000000, "timestamp", "timestamp[us, tz=UTC] 253402300800000000"),
        ("date", "int", 2932897, "date", "date32[day] 2932897"),
    )
]
FAR = [
    differs(
        one,
        KAFKA,
        "a record with such a year is a reject, but its reason is Python's",
        defect=True,
        rejects={1: "no Avro of this schema: …"},
    )
    for one in FAR
]
SEVERAL = [
    case(
        "records have numbers, and no record is none",
        "avro",
        AvroRecords({"a": "long", "b": ["null", "string"]}, [{"a": n, "b": None} for n in range(5)]),
        [(n, None) for n in range(5)],
        columns="a bigint, b string",
    ),
]
FILES = [
    defect(
        case(
            "no Avro",
            "avro",
            File(b"hello"),
            columns="",
            rejects={None: "not Avro: it does not begin as Avro files do"},
        ),
        "one such file stops the plan of the whole stream: the look at columns does not expect it",
        error="crash: BadAvro: it does not begin as Avro files do",
    ),
    case("nothing", "avro", File(b""), columns="", rejects={None: "not Avro: …"}),
]
LONG = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "bytes"}]}
MESSAGES = [
    case(
        "messages with and without a schema's number",
        "avro",
        Records(b"\x02\x02x", b"\x00\x00\x00\x00\x07\x02\x02x", None),
        [(1, b"x"), (1, b"x"), (None, None)],
        columns="a bigint, b binary",
        avro_schema=LONG,
    ),
    case(
        "messages that are no such record",
        "avro",
        Records(b"\x02\x02x", b"", b"\x02", b"\x02\x02x!"),
        [(1, b"x")],
        columns="a bigint, b binary",
        rejects={
            2: "no Avro of this schema: EOFError",
            3: "no Avro of this schema: EOFError",
            4: "no Avro of this schema: 1 bytes are left over",
        },
        avro_schema=LONG,
    ),
    case(
        "a message that makes sense both ways",
        "avro",
        Records(bytes([0, 10, 1, 1, 1, 2, 0])),
        columns="a bigint, b binary",
        rejects={1: "readable with and without a schema number in front; write avro_header: registry or none"},
        avro_schema=LONG,
    ),
    case(
        "a message without a number, as the settings say",
        "avro",
        Records(bytes([0, 10, 1, 1, 1, 2, 0])),
        [(0, b"\1\1\1\2\0")],
        columns="a bigint, b binary",
        avro_schema=LONG,
        avro_header="none",
    ),
    case(
        "a message with a number, as the settings say",
        "avro",
        Records(bytes([0, 10, 1, 1, 1, 2, 0]), b"\x02\x02x"),
        [(1, b"")],
        columns="a bigint, b binary",
        rejects={2: "no schema number in front"},
        avro_schema=LONG,
        avro_header="registry",
    ),
    case(
        "a text that is no UTF-8",
        "avro",
        Records(b"\x02x", b"\x02\xff"),
        [("x",)],
        columns="a string",
        rejects={2: "no Avro of this schema: UnicodeDecodeError 'utf-8' codec can't decode byte 0xff in …"},
        avro_schema={"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]},
    ),
    case(
        "a symbol that the schema does not have",
        "avro",
        Records(b"\x08"),
        columns="a string",
        rejects={1: "no Avro of this schema: IndexError list index out of range"},
        avro_schema={"type": "record", "name": "r", "fields": [{"name": "a", "type": STATE}]},
    ),
    case(
        "a schema that is no record",
        "avro",
        Records(b"x"),
        error="the schema is no record",
        avro_schema={"type": "array", "items": "int"},
    ),
    case(
        "a type that is declared nowhere",
        "avro",
        Records(b"x"),
        error="somewhere.else is not a known type",
        avro_schema={"type": "record", "name": "r", "fields": [{"name": "a", "type": "somewhere.else"}]},
    ),
]
WIDER = [
    case(
        "an int becomes a bigint in a later window",
        "avro",
        [AvroRecords({"a": "int"}, [{"a": 1}]), AvroRecords({"a": "long", "b": "string"}, [{"a": 2**40, "b": "x"}])],
        [(2**40, "x")],
        columns="a bigint, b string",
        only=OBJECTS,
    ),
    case(
        "another type fails the file",
        "avro",
        [AvroRecords({"a": "long"}, [{"a": 1}]), AvroRecords({"a": "string"}, [{"a": "x"}])],
        columns="a bigint",
        rejects={None: "column a is string in the object and bigint in the stream"},
        only=OBJECTS,
    ),
]
CASES = [*TYPES, *DIFFERENT, *DEFECTS, *UNKEPT, *FAR, *SEVERAL, *FILES, *MESSAGES, *WIDER]
