"""Parquet: the columns that a file declares, in the types that a stream's columns can have."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.sources.formats.case import Case, File, case, defect

MOMENT = dt.datetime(2026, 3, 2, 8, 0, 0, 123456, dt.UTC)
LOCAL = MOMENT.replace(tzinfo=None)
UUID = uuid.UUID(int=7)


def parquet(columns: dict[str, Any], **options: Any) -> File:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return File(out.getvalue())


def exact(kind: pa.DataType, value: Any, ddl: str, row: Any) -> Case:
    """The value and a NULL."""
    payload = parquet({"a": pa.array([value, None], kind)})
    return case(f"{kind}", "parquet", payload, [(row,), (None,)], columns=f"a {ddl}")


STRUCT = pa.struct([("odd `,name", pa.list_(pa.decimal128(5, 2))), ("t", pa.timestamp("s", "UTC"))])
DAY = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
TYPES = [
    exact(pa.int8(), -5, "int", -5),
    exact(pa.int16(), -32768, "int", -32768),
    exact(pa.int32(), 2**31 - 1, "int", 2**31 - 1),
    exact(pa.int64(), -(2**63), "bigint", -(2**63)),
    exact(pa.uint8(), 255, "int", 255),
    exact(pa.uint16(), 65535, "int", 65535),
    exact(pa.uint32(), 2**32 - 1, "bigint", 2**32 - 1),
    exact(pa.uint64(), 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    exact(pa.float16(), np.float16(1.5), "float", 1.5),  # older versions of Arrow take no other float
    exact(pa.float32(), float("inf"), "float", float("inf")),
    exact(pa.float64(), 0.1, "double", 0.1),
    exact(pa.bool_(), True, "boolean", True),
    exact(pa.decimal128(38, 10), Decimal("1.5"), "decimal(38,10)", Decimal("1.5000000000")),
    exact(pa.decimal128(38, 0), Decimal("9" * 38), "decimal(38,0)", Decimal("9" * 38)),
    exact(pa.string(), "é\x00", "string", "é\x00"),
    exact(pa.large_string(), "é", "string", "é"),
    exact(pa.binary(), b"\x00", "binary", b"\x00"),
    exact(pa.binary(3), b"abc", "binary", b"abc"),
    exact(pa.date32(), dt.date(1, 1, 1), "date", dt.date(1, 1, 1)),
    exact(pa.date64(), dt.date(2026, 3, 2), "date", dt.date(2026, 3, 2)),
    exact(pa.timestamp("ms"), LOCAL.replace(microsecond=1000), "timestamp_ntz", LOCAL.replace(microsecond=1000)),
    exact(pa.timestamp("us"), LOCAL, "timestamp_ntz", LOCAL),
    exact(pa.timestamp("us", "UTC"), MOMENT, "timestamp", MOMENT),
    exact(pa.timestamp("ns", "Europe/Berlin"), MOMENT, "timestamp", MOMENT),
    exact(pa.time32("ms"), dt.time(8, 0, 0, 5000), "string", "08:00:00.005"),
    exact(pa.time64("ns"), 1, "string", "00:00:00.000000001"),
    exact(pa.time64("us"), dt.time(8, 0, 0, 5), "string", "08:00:00.000005"),
    exact(pa.dictionary(pa.int8(), pa.string()), "x", "string", "x"),
    exact(pa.list_(pa.string()), ["x", None], "array<string>", ["x", None]),
    exact(pa.large_list(pa.int8()), [1, None], "array<int>", [1, None]),
    exact(pa.map_(pa.string(), pa.int64()), [("k", 1)], "map<string,bigint>", [("k", 1)]),
    exact(
        STRUCT,
        {"odd `,name": [Decimal("1.50")], "t": DAY},
        "struct<`odd `,name` array<decimal(5,2)>, t timestamp>",
        {"odd `,name": [Decimal("1.50")], "t": DAY},
    ),
    case(
        "UUIDs are their text",
        "parquet",
        parquet({"a": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID.bytes, None], pa.binary(16)))}),
        [(str(UUID),), (None,)],
        columns="a string",
    ),
    case(
        "INT96 is an instant",
        "parquet",
        parquet({"a": pa.array([LOCAL], pa.timestamp("us"))}, use_deprecated_int96_timestamps=True),
        [(MOMENT,)],
        columns="a timestamp",
    ),
    case("a column of nothing", "parquet", parquet({"a": [1], "n": pa.nulls(1)}), [(1,)], columns="a bigint"),
    case("no rows", "parquet", parquet({"a": pa.array([], pa.int64())}), columns="a bigint"),
]
REJECTS = [
    case(
        "nanoseconds that microseconds cannot keep",
        "parquet",
        parquet(
            {"n": pa.array(range(5), pa.int32()), "t": pa.array([1000, 1001, None, 2000, 2999], pa.timestamp("ns"))}
        ),
        [
            (0, dt.datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001 - that is the point
            (2, None),
            (3, dt.datetime(1970, 1, 1, 0, 0, 0, 2)),  # noqa: DTZ001 - that is the point
        ],
        columns="n int, t timestamp_ntz",
        rejects={
            2: "t: Casting from timestamp[ns] to timestamp[us] would lose data: 1001",
            5: "t: Casting from timestamp[ns] to timestamp[us] would lose data: 2999",
        },
    ),
    defect(
        case(
            "nanoseconds in a list",
            "parquet",
            parquet({"a": pa.array([[1000], [1001]], pa.list_(pa.timestamp("ns")))}),
            [([dt.datetime(1970, 1, 1, 0, 0, 0, 1)],)],  # noqa: DTZ001 - that is the point
            columns="a array<timestamp_ntz>",
            rejects={2: "a: Casting from timestamp[ns] to timestamp[us] would lose data: 1001"},
        ),
        "Arrow casts all items of a list, also those outside of a slice: good rows beside a bad one are rejects",
        rows=[],
        rejects=dict.fromkeys((1, 2), "a: Casting from timestamp[ns] to timestamp[us] would lose data: 1001"),
    ),
    defect(
        case(
            "a time beyond a day",
            "parquet",
            parquet({"a": pa.array([5, 86400000000, -1], pa.int64()).cast(pa.time64("us"))}),
            [("00:00:00.000005",)],
            columns="a string",
            rejects={2: "a: 86400000000 is no time of day", 3: "a: -1 is no time of day"},
        ),
        "Arrow's words for a value that it cannot show land as the value",
        rows=[("00:00:00.000005",), ("<value out of range: 86400000000>",), ("<value out of range: -1>",)],
        rejects={},
    ),
    defect(
        case(
            "a year beyond 9999",
            "parquet",
            parquet({"a": pa.array([253402300800000000], pa.int64()).cast(pa.timestamp("us", "UTC"))}),
            columns="a timestamp",
            rejects={1: "a: a year outside of 1 to 9999"},
        ),
        "a year outside of 1 to 9999 lands",
        rows=[("timestamp[us, tz=UTC] 253402300800000000",)],
        rejects={},
    ),
]
FAILED = [
    case("no Parquet", "parquet", File(b"x" * 5000), columns="", rejects={None: "not Parquet: …"}),
    case("nothing", "parquet", File(b""), columns="", rejects={None: "not Parquet: …"}),
    case("only the mark", "parquet", File(b"PAR1"), columns="", rejects={None: "not Parquet: …"}),
    case(
        "cut at the end",
        "parquet",
        File(parquet({"a": [1]}).content[:-1]),
        columns="",
        rejects={None: "not Parquet: …"},
    ),
    case(
        "a type that no column keeps",
        "parquet",
        parquet({"a": pa.nulls(1, pa.decimal256(50, 2)), "b": [1]}),
        columns="",
        rejects={None: "column a: decimal256(50, 2): at most 38 digits are supported, with a scale within them"},
    ),
    *(
        case(
            f"{kind}",
            "parquet",
            parquet({"a": pa.nulls(1, kind), "b": [1]}),
            columns="",
            rejects={None: f"column a: {reason}"},
        )
        for kind, reason in (
            (pa.duration("us"), "duration[us] has no exact column type"),
            (pa.list_(pa.null()), "null has no exact column type"),
        )
    ),
    case(
        "a column without a name",
        "parquet",
        parquet({"": [1]}),
        columns="",
        rejects={None: "columns with empty or ambiguous names: ''"},
    ),
    case(
        "names that differ in case",
        "parquet",
        parquet({"b": [1], "B": [2]}),
        columns="",
        rejects={None: "columns with empty or ambiguous names: 'b', 'B'"},
    ),
    case(
        "a name that metadata has",
        "parquet",
        parquet({"object_url": [1]}),
        error="fields that cannot be columns beside each other: object_url, object_url",
    ),
]
LATER = [
    case(
        "columns widen, and new ones stand behind",
        "parquet",
        [
            parquet({"a": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")], pa.decimal128(4, 1)),
                     "f": pa.array([0.5], pa.float32())}),
            parquet({"b": ["new"], "a": [2**40], "d": pa.array([Decimal("123.5")], pa.decimal128(9, 1)), "f": [0.1]}),
        ],
        [(2**40, Decimal("123.5"), 0.1, "new")],
        columns="a bigint, d decimal(9,1), f double, b string",
    ),
    case(
        "a narrower type fits",
        "parquet",
        [parquet({"a": [1], "f": [0.1]}), parquet({"a": pa.array([2], pa.int32()), "f": pa.array([0.5], pa.float32())})],
        [(2, 0.5)],
        columns="a bigint, f double",
    ),
    *(
        case(
            f"{name} where there was a bigint",
            "parquet",
            [parquet({"a": [1]}), parquet({column: [value]})],
            columns="a bigint",
            rejects={None: reason},
        )
        for name, column, value, reason in (
            ("a text", "a", "x", "column a is string in the object and bigint in the stream"),
            ("a double", "a", 1.5, "column a is double in the object and bigint in the stream"),
            ("a name in another case", "A", 1, "column A does not fit among a"),
        )
    ),
]  # fmt: skip
CASES = [*TYPES, *REJECTS, *FAILED, *LATER]
