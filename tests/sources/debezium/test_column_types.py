"""Every type of the PostgreSQL and the MySQL connector in every mode, by the schemas that the connectors document."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal

import pytest

from headwater.sources.debezium.envelope import Messages
from tests.sources.debezium.reading import Stream, as_bytes, event, field, messages_of, with_schema

DBZ, CONNECT = "io.debezium", "org.apache.kafka.connect.data"
NAIVE = dt.datetime(2026, 3, 2, 8, 30, 0, 123456)  # noqa: DTZ001 - that is the point
MICROS = 1772440200123456
UTC = NAIVE.replace(tzinfo=dt.UTC)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    return b64(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True))


def decimal(precision: int, scale: int) -> dict:
    return {"parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)}}


POINT = [field("x", "double"), field("y", "double"), field("wkb", "bytes"), field("srid", "int32")]
VARIABLE = {"fields": [field("scale", "int32"), field("value", "bytes")]}
TEXTS = {"items": {"type": "string", "optional": True}}

# What it is in the database, the field of its schema, what is written, the column's type, the value that is kept.
CASES = [
    ("boolean, bit(1)", field("v", "boolean"), True, "boolean", True),
    ("smallint", field("v", "int16"), -32768, "int", -32768),
    ("integer", field("v", "int32"), 2147483647, "int", 2147483647),
    ("bigint, oid", field("v", "int64"), -(2**63), "bigint", -(2**63)),
    ("real", field("v", "float"), 3.4028235e38, "float", 3.4028234663852886e38),
    ("real NaN", field("v", "float"), "NaN", "float", math.nan),
    ("double precision", field("v", "double"), 5e-324, "double", 5e-324),
    ("double infinity", field("v", "double"), "-Infinity", "double", -math.inf),
    ("text, varchar, citext, inet, cidr, macaddr, ranges", field("v", "string"), "[1,5)", "string", "[1,5)"),
    ("char with its padding", field("v", "string"), "a  ", "string", "a  "),
    ("bytea as bytes", field("v", "bytes"), b64(b"\0\xff"), "binary", b"\0\xff"),
    ("bytea as hex", field("v", "string"), "00ff", "string", "00ff"),
    ("bytea as base64-url-safe", field("v", "string"), "_-8=", "string", "_-8="),
    ("bit(12), varbit", field("v", "bytes", f"{DBZ}.data.Bits", parameters={"length": "12"}), "BQg=", "binary", b"\5\x08"),
    ("numeric(12,2) precise", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(12, 2)), unscaled(-1234), "decimal(12,2)", Decimal("-12.34")),
    ("numeric(38,0) precise", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(38, 0)), unscaled(10**38 - 1), "decimal(38,0)", Decimal(10**38 - 1)),
    ("numeric(50,2) precise", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(50, 2)), unscaled(10**49 + 1), "string", "1" + "0" * 46 + "0.01"),
    ("money", field("v", "bytes", f"{CONNECT}.Decimal", parameters={"scale": "2"}), unscaled(199), "decimal(38,2)", Decimal("1.99")),
    ("decimal.format NUMERIC", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(12, 2)), 1234, "decimal(12,2)", Decimal(1234)),
    ("numeric precise", field("v", "struct", f"{DBZ}.data.VariableScaleDecimal", **VARIABLE), {"scale": 3, "value": unscaled(-1)}, "string", "-0.001"),
    ("numeric double", field("v", "double"), 12.34, "double", 12.34),
    ("numeric string", field("v", "string"), "NaN", "string", "NaN"),
    ("date adaptive", field("v", "int32", f"{DBZ}.time.Date"), 20514, "date", dt.date(2026, 3, 2)),
    ("date connect", field("v", "int32", f"{CONNECT}.Date"), -719162, "date", dt.date(1, 1, 1)),
    ("date isostring", field("v", "string", f"{DBZ}.time.IsoDate"), "2026-03-02Z", "date", dt.date(2026, 3, 2)),
    ("time(3) adaptive", field("v", "int32", f"{DBZ}.time.Time"), 30600123, "string", "08:30:00.123"),
    ("time connect", field("v", "int32", f"{CONNECT}.Time"), 0, "string", "00:00:00.000"),
    ("time micros", field("v", "int64", f"{DBZ}.time.MicroTime"), 30600123456, "string", "08:30:00.123456"),
    ("time 24:00", field("v", "int64", f"{DBZ}.time.MicroTime"), 86400000000, "string", "24:00:00.000000"),
    ("time nanos", field("v", "int64", f"{DBZ}.time.NanoTime"), 30600123456789, "string", "08:30:00.123456789"),
    ("time isostring", field("v", "string", f"{DBZ}.time.IsoTime"), "08:30:00.5Z", "string", "08:30:00.5"),
    ("timetz", field("v", "string", f"{DBZ}.time.ZonedTime"), "08:30:00.123456Z", "string", "08:30:00.123456Z"),
    ("timestamp(3) adaptive", field("v", "int64", f"{DBZ}.time.Timestamp"), MICROS // 1000, "timestamp_ntz", NAIVE.replace(microsecond=123000)),
    ("timestamp connect", field("v", "int64", f"{CONNECT}.Timestamp"), MICROS // 1000, "timestamp_ntz", NAIVE.replace(microsecond=123000)),
    ("timestamp micros", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), MICROS, "timestamp_ntz", NAIVE),
    ("timestamp nanos", field("v", "int64", f"{DBZ}.time.NanoTimestamp"), MICROS * 1000, "timestamp_ntz", NAIVE),
    ("timestamp isostring", field("v", "string", f"{DBZ}.time.IsoTimestamp"), "2026-03-02T08:30:00.123456Z", "timestamp_ntz", NAIVE),
    ("timestamptz", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "2026-03-02T08:30:00.123456Z", "timestamp", UTC),
    ("timestamptz with zeros", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "2026-03-02T10:30:00.123456000+02:00", "timestamp", UTC),
    ("interval numeric", field("v", "int64", f"{DBZ}.time.MicroDuration"), -1, "bigint", -1),
    ("interval string", field("v", "string", f"{DBZ}.time.Interval"), "P1Y2M3DT4H5M6.78S", "string", "P1Y2M3DT4H5M6.78S"),
    ("json", field("v", "string", f"{DBZ}.data.Json"), '{"a": 1.50}', "string", '{"a": 1.50}'),
    ("xml", field("v", "string", f"{DBZ}.data.Xml"), "<a/>", "string", "<a/>"),
    ("uuid", field("v", "string", f"{DBZ}.data.Uuid"), "0f8a…", "string", "0f8a…"),
    ("ltree", field("v", "string", f"{DBZ}.data.Ltree"), "a.b", "string", "a.b"),
    ("enum", field("v", "string", f"{DBZ}.data.Enum", parameters={"allowed": "a,b"}), "b", "string", "b"),
    ("hstore json", field("v", "string", f"{DBZ}.data.Json"), '{"a":null}', "string", '{"a":null}'),
    ("hstore map", field("v", "map", keys={"type": "string"}, values={"type": "string", "optional": True}), {"a": None, "b": "1"}, "map<string,string>", [("a", None), ("b", "1")]),
    ("point", field("v", "struct", f"{DBZ}.data.geometry.Point", fields=POINT), {"x": 1.5, "y": -2, "wkb": b64(b"\1"), "srid": None}, "struct<`x`: double,`y`: double,`wkb`: binary,`srid`: int>", {"x": 1.5, "y": -2.0, "wkb": b"\1", "srid": None}),
    ("geometry", field("v", "struct", f"{DBZ}.data.geometry.Geometry", fields=POINT[2:]), {"wkb": b64(b"\1"), "srid": 4326}, "struct<`wkb`: binary,`srid`: int>", {"wkb": b"\1", "srid": 4326}),
    ("text[]", field("v", "array", **TEXTS), ["a", None, ""], "array<string>", ["a", None, ""]),
    ("integer[] of none", field("v", "array", items={"type": "int32", "optional": True}), [], "array<int>", []),
    ("date[]", field("v", "array", items=field("", "int32", f"{DBZ}.time.Date")), [20514, None], "array<date>", [dt.date(2026, 3, 2), None]),
    ("numeric(5,1)[]", field("v", "array", items=field("", "bytes", f"{CONNECT}.Decimal", **decimal(5, 1))), [unscaled(15)], "array<decimal(5,1)>", [Decimal("1.5")]),
    ("timestamptz[]", field("v", "array", items=field("", "string", f"{DBZ}.time.ZonedTimestamp")), ["2026-03-02T08:30:00.123456Z"], "array<timestamp>", [UTC]),
    ("vector", field("v", "array", f"{DBZ}.data.DoubleVector", items={"type": "double"}), [1.0, 2.5], "array<double>", [1.0, 2.5]),
    ("halfvec", field("v", "array", f"{DBZ}.data.FloatVector", items={"type": "float"}), [1.0, 2.5], "array<float>", [1.0, 2.5]),
    ("sparsevec", field("v", "struct", f"{DBZ}.data.SparseDoubleVector", fields=[field("dimensions", "int16"), field("vector", "map", keys={"type": "int16"}, values={"type": "double"})]), {"dimensions": 2, "vector": [[1, 0.5]]}, "struct<`dimensions`: int,`vector`: string>", {"dimensions": 2, "vector": "[[1,0.5]]"}),
    ("mysql year", field("v", "int32", f"{DBZ}.time.Year"), 2026, "int", 2026),
    ("mysql bigint unsigned", field("v", "bytes", f"{CONNECT}.Decimal", parameters={"scale": "0"}), unscaled(2**64 - 1), "decimal(38,0)", Decimal(2**64 - 1)),
    ("mysql tinyint", field("v", "int8"), -128, "int", -128),
    ("mysql set", field("v", "string", f"{DBZ}.data.EnumSet"), "a,b", "string", "a,b"),
    ("mysql time", field("v", "int64", f"{DBZ}.time.MicroTime"), -3020399000001, "string", "-838:59:59.000001"),
    ("mysql datetime(3)", field("v", "int64", f"{DBZ}.time.Timestamp"), MICROS // 1000, "timestamp_ntz", NAIVE.replace(microsecond=123000)),
]  # fmt: skip


def value_of(schema: dict, *written: object) -> tuple[Stream, object]:
    stream = Stream(key=["id"])
    fields = [field("id", "int32"), schema]
    events = [{"value": with_schema(fields, event("c", {"id": n, "v": one}))} for n, one in enumerate(written)]
    return stream, stream.poll(messages_of(events))


@pytest.mark.parametrize(
    ("schema", "written", "kind", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_type_is_kept_exactly(schema, written, kind, expected):
    stream, decoded = value_of(schema, written, None)
    assert decoded.rejected == []
    assert stream.columns["v"][1] == kind
    value, nothing = decoded.rows.column("v").to_pylist()
    assert nothing is None
    assert value == expected or (isinstance(expected, float) and math.isnan(expected) and math.isnan(value))
    assert type(value) is type(expected)


INEXACT = [
    ("timestamp infinity", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), 9223372036825200000),
    ("timestamp -infinity", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), -9223372036832400000),
    ("timestamp(3) infinity", field("v", "int64", f"{DBZ}.time.Timestamp"), 9223372036825200),
    ("timestamp of year 10000", field("v", "int64", f"{DBZ}.time.MicroTimestamp"), 253402300800000000),
    ("nanoseconds", field("v", "int64", f"{DBZ}.time.NanoTimestamp"), 1),
    ("timestamptz infinity", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "infinity"),
    ("timestamptz before Christ", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "-0043-03-15T00:00:00Z"),
    ("timestamptz nanoseconds", field("v", "string", f"{DBZ}.time.ZonedTimestamp"), "2026-03-02T08:30:00.123456789Z"),
    ("date infinity", field("v", "int32", f"{DBZ}.time.Date"), 2147483647),
    ("date before Christ", field("v", "int32", f"{DBZ}.time.Date"), -719163),
    ("decimal with too many digits", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(4, 2)), unscaled(10000)),
    ("decimal as a number with too many digits", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(4, 2)), 1.234),
    ("no base64", field("v", "bytes"), "%%%"),
    ("decimal of nothing", field("v", "bytes", f"{CONNECT}.Decimal", **decimal(4, 2)), ""),
    ("a text where a number is", field("v", "int32"), "1"),
    ("a number beyond its type", field("v", "int32"), 2147483648),
    ("a fraction", field("v", "int64"), 1.5),
    ("a number where a text is", field("v", "string"), 1),
    ("an array of what does not fit", field("v", "array", items=field("", "int32", f"{DBZ}.time.Date")), [0, 2147483647]),
    ("half of a surrogate pair", field("v", "string"), "\ud800"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "written"), [case[1:] for case in INEXACT], ids=[case[0] for case in INEXACT])
def test_what_cannot_be_kept_is_a_reject_that_names_the_column(schema, written):
    _, decoded = value_of(schema, None, written, None)
    assert decoded.rows.column("id").to_pylist() == [0, 2]
    ((index, reason),) = decoded.rejected
    assert index == 1
    assert reason.startswith(("v: ", "after: v: "))


def test_one_bad_value_among_many_does_not_disturb_them():
    schema = field("v", "int64", f"{DBZ}.time.MicroTimestamp")
    written = [n if n % 1000 else 9223372036825200000 for n in range(1, 3001)]
    _, decoded = value_of(schema, *written)
    assert [index for index, _ in decoded.rejected] == [999, 1999, 2999]
    values = decoded.rows.column("v").cast("int64").to_pylist()
    assert values == [n for n in range(1, 3001) if n % 1000]


@pytest.mark.parametrize("more", [{"type": "int128"}, {"type": "array"}, {"type": "map", "keys": 1}, {"type": None}])
def test_a_schema_that_makes_no_sense_leaves_the_value_as_its_json(more):
    stream, decoded = value_of({**field("v", ""), **more}, [1, 2.50], None)
    assert stream.columns["v"][1] == "string"
    assert decoded.rows.column("v").to_pylist() == ["[1,2.5]", None]


def test_messages_whose_schema_stands_behind_the_payload_are_read_too():
    value = with_schema([field("id", "int32")], event("c", {"id": 5}))
    turned = {"payload": value["payload"], "schema": value["schema"]}
    stream = Stream(key=["id"])
    decoded = stream.poll(messages_of([{"value": value}, {"value": turned}]))
    assert decoded.rows.column("id").to_pylist() == [5, 5]


@pytest.mark.parametrize("form", [{}, {"indent": 1}, {"separators": (" , ", " : ")}])
def test_white_space_says_nothing(form):
    value = with_schema([field("id", "int32")], event("c", {"id": 5}))
    stream = Stream(key=["id"])
    for written in (value, value["payload"]):
        messages = Messages([json.dumps(written, **form).encode()] * 2, lambda _: None, lambda _: None)
        assert stream.poll(messages).rows.column("id").to_pylist() == [5, 5]


def test_what_is_behind_the_payload_is_no_part_of_it():
    good = as_bytes(with_schema([field("id", "int32")], event("c", {"id": 5})))
    stream = Stream(key=["id"])
    stream.look(messages_of([{"value": with_schema([field("id", "int32")], event("c", {"id": 5}))}]))
    for bad in (good[:-1], good + b"}", good[:-1] + b"x", good[:-2]):
        decoded = stream.decode(Messages([good, bad], lambda _: None, lambda _: None))
        assert [index for index, _ in decoded.rejected] == [1], bad[-20:]
