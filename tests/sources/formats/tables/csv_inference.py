"""Columns of CSV without a schema: a type only where every text is written as its value would be."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.sources.formats.case import Case, File, case, defect

EIGHT = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)
HALF = EIGHT.replace(microsecond=500000)


def inferred(kind: str, *pairs: tuple[str | None, Any]) -> Case:
    """None is an empty field."""
    fields = [f"{n},{'' if text is None else text}" for n, (text, _) in enumerate(pairs)]
    name = f"{kind} for {', '.join(repr(text) for text, _ in pairs)}"
    rows = [(n, value) for n, (_, value) in enumerate(pairs)]
    return case(name, "csv", File("\n".join(["n,a", *fields])), rows, columns=f"n bigint, a {kind}")


def texts(*written: str) -> Case:
    return inferred("string", *((text, text) for text in written))


TYPES = [
    inferred("bigint", ("1", 1), ("-5", -5), ("0", 0)),
    inferred("bigint", (None, None), ("1", 1)),
    inferred("bigint", ("9007199254740993", 2**53 + 1)),
    inferred("bigint", ("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))),
    texts("9223372036854775808"),
    texts("007"),
    texts("+1"),
    texts("-0"),
    inferred("double", ("1.5", 1.5), ("2", 2.0)),
    inferred("double", ("2.0", 2.0), ("-0.5", -0.5), ("1e+16", 1e16)),
    inferred("double", ("-0.0", -0.0)),
    inferred("double", ("0.30000000000000004", 0.30000000000000004)),
    texts("9007199254740993", "1.5"),
    texts("1.50"),
    texts("1e5"),
    texts("0.1234567890123456789"),
    texts(".5"),
    texts("5."),
    texts("nan"),
    texts("NaN"),
    texts("Infinity"),
    texts("1.2.3"),
    texts("1", "x"),
    texts("0x10"),
    inferred("boolean", ("true", True), ("false", False), (None, None)),
    texts("True"),
    texts("true", "1"),
    inferred("date", ("2026-03-02", dt.date(2026, 3, 2)), ("9999-12-31", dt.date(9999, 12, 31))),
    texts("2026-02-30"),
    texts("2026-3-2"),
    texts("2026/03/02"),
    inferred("timestamp", ("2026-03-02T08:00:00Z", EIGHT), ("2026-03-02 08:00:00.5Z", HALF)),
    texts("2026-03-02T08:00:00+02:00"),
    texts("2026-03-02T08:00Z"),
    inferred("timestamp_ntz", ("2026-03-02 08:00:00", EIGHT.replace(tzinfo=None))),
    texts("2026-03-02 08:00:00.1234567"),
    texts("2026-03-02T25:00:00Z"),
    texts("2026-03-02", "5"),
    texts("2026-03-02T08:00:00Z", "2026-03-02T08:00:00"),
    texts("08:00:00"),
    texts("12345678901234567890", "1.5"),
    texts("-", "1"),
    texts("1.5", "NaN"),
    *(
        defect(
            texts(text),
            "a year outside of 1 to 9999 is taken for a moment",
            columns=f"n bigint, a {kind}",
            rows=[(0, today)],
        )
        for text, kind, today in (
            ("0000-01-01", "date", "date32[day] -719528"),
            ("0000-01-01T00:00:00Z", "timestamp", "timestamp[us, tz=UTC] -62167219200000000"),
        )
    ),
    inferred("string", ('""', ""), ("1", "1")),
    texts("[1]", "{}"),
]
FILES = [
    case(
        "a column of nothing but empty fields is none",
        "csv",
        File("id,price,code,empty\n1,2.5,007,\n2,3.5,x,\n"),
        [(1, 2.5, "007"), (2, 3.5, "x")],
        columns="id bigint, price double, code string",
    ),
    case(
        "columns without a header have numbers",
        "csv",
        File("1,,x\n2,,y\n"),
        [(1, "x"), (2, "y")],
        columns="column1 bigint, column3 string",
        csv={"header": False},
    ),
    case(
        "a field that is no UTF-8 is a reject",
        "csv",
        File(b"a,b\n1,x\n2,\xff\n"),
        [(1, "x")],
        columns="a bigint, b string",
        rejects={3: "b: not UTF-8 at byte 0"},
    ),
    case(
        "a ragged record is a reject, and the others are rows",
        "csv",
        File("a,b\n1,x\n2\n"),
        [(1, "x")],
        columns="a bigint, b string",
        rejects={3: "2 columns, 1 values"},
    ),
    case(
        "an open quote brings no column",
        "csv",
        File('id\n"open'),
        columns="",
        rejects={None: "row 2: a quote is never closed"},
    ),
    defect(
        case(
            "a column twice fails the file",
            "csv",
            File("a,a,b\n1,2,3\n"),
            columns="",
            rejects={None: "column a is in its header twice"},
        ),
        "the values of a column that stands twice are left out in silence",
        columns="b bigint",
        rows=[(3,)],
        rejects={},
    ),
    case(
        "a column without a name is refused",
        "csv",
        File("a,,b\n1,2,3\n"),
        error="fields that cannot be columns beside each other: one without a name",
    ),
    case(
        "an empty text is no NULL", "csv", File('a,b\n1,""\n2,\n'), [(1, ""), (2, None)], columns="a bigint, b string"
    ),
    case(
        "a double takes NaN and Infinity of later files",
        "csv",
        [File("a\n1.5\n"), File("a\nNaN\n-Infinity\n")],
        [(float("nan"),), (float("-inf"),)],
        columns="a double",
    ),
    case("only a header brings no column", "csv", File("a,b\n"), columns=""),
    case(
        "a column keeps its type, and later texts that do not fit are rejects",
        "csv",
        [File("a,d\n1,2026-03-02\n"), File("a,d\n007,\nx,\n3,today\n")],
        [(7, None)],
        columns="a bigint, d date",
        rejects={
            3: "a: expected a number, found the text 'x'",
            4: "d: expected a date such as 2026-03-02, found the text 'today'",
        },
    ),
    case(
        "new columns stand behind the known ones",
        "csv",
        [File("b\n1\n"), File("a,b\ntrue,2\n")],
        [(2, True)],
        columns="b bigint, a boolean",
    ),
    case(
        "names that differ in case are refused",
        "csv",
        File("id,ID\n1,2\n"),
        error="fields that cannot be columns beside each other: id, ID",
    ),
]
CASES = [*TYPES, *FILES]
