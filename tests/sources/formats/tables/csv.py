"""CSV in columns of a declared schema."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from tests.sources.formats.case import Case, File, Number, case

TWO = "a bigint, b string"


def rows(name: str, content: str | bytes, *expected: tuple[Any, ...], **more: Any) -> Case:
    return case(name, "csv", File(content), list(expected), **{"schema": TWO, **more})


def bad(name: str, content: str | bytes, rejects: dict[Number, str], *expected: tuple[Any, ...], **more: Any) -> Case:
    return case(name, "csv", File(content), list(expected), rejects=rejects, **{"schema": TWO, **more})


def exact(ddl: str, text: str, value: Any) -> Case:
    quoted = '"' + text.replace('"', '""') + '"'
    return case(f"{ddl} takes '{text}'", "csv", File(f"a\n{quoted}\n"), [(value,)], schema=f"a {ddl}")


def refused(ddl: str, text: str, reason: str) -> Case:
    quoted = '"' + text.replace('"', '""') + '"'
    name = f"{ddl} refuses '{text}'"
    return case(name, "csv", File(f"a\n{quoted}\n"), rejects={2: f"a: {reason}"}, schema=f"a {ddl}")


def number(text: str) -> str:
    return f"expected a number, found the text '{text}'"


ODD = {"header": False, "delimiter": ";", "quote": "'", "escape": "\\", "null": ["\\N", "-"]}
RECORDS = [
    rows("records", "a,b\n1,x\n2,y\n", (1, "x"), (2, "y")),
    rows("no newline at the end", "a,b\n1,x\n2,y", (1, "x"), (2, "y")),
    rows("carriage returns and newlines", "a,b\r\n1,x\r\n", (1, "x")),
    rows("carriage returns alone", "a,b\r1,x\r", (1, "x")),
    rows("a mark of UTF-8 in front", "\ufeffa,b\n1,x\n", (1, "x")),
    rows("columns in another order", "b,a\nx,1\n", (1, "x")),
    rows("columns that are missing and others", "c,b,d\n9,x,8\n", (None, "x")),
    rows("an empty field is NULL", "a,b\n,\n", (None, None)),
    rows("a quoted empty field is a text", 'a,b\n1,""\n', (1, "")),
    rows("quotes around delimiters, newlines and quotes", '"a","b"\n"1","x,\ny ""z"""\n', (1, 'x,\ny "z"')),
    rows("a carriage return in quotes", 'a,b\r\n1,"x\r\ny"\r\n', (1, "x\r\ny")),
    rows("a quote inside of a value", 'a,b\n1,5" pipe\n', (1, '5" pipe')),
    rows("blank lines are no records", "a,b\n\n1,x\n\n\n2,y\n\n", (1, "x"), (2, "y")),
    rows("only a header", "a,b\n"),
    rows("only a header without a newline", "a,b"),
    rows("nothing", ""),
    rows("blank lines", "\n\n"),
    rows("blanks are kept", "a,b\n1, x \n", (1, " x ")),
    rows("a NUL", "a,b\n1,é\x00\n", (1, "é\x00")),
    rows("a column twice that nothing wants", "a,c,c\n1,2,3\n", (1, None)),
    rows("a header in quotes over lines", '"a","b\nc",b\n1,z,x\n', (1, "x")),
    rows("a backslash is itself", "a,b\n1,x\\y\n", (1, "x\\y")),
    rows("how it is written is said", "1;'x;y'\n2;-\n3;'-'\n4;a\\;b\n5;'it\\'s'\n6;\n7;\\N\n",
         (1, "x;y"), (2, None), (3, "-"), (4, "a;b"), (5, "it's"), (6, ""), (7, "N"), csv=ODD),
    rows("tabs", "1\tx\n", (1, "x"), csv={"header": False, "delimiter": "\t"}),
    rows("no header and one column", "1\n2\n", (1,), (2,), csv={"header": False}, schema="a bigint"),
    bad("NULL as a word", "a,b\nNULL,NULL\n1,\n,x\n", {4: f"a: {number('')}"},
        (None, None), (1, ""), csv={"null": ["NULL"]}),
]  # fmt: skip
BAD = [
    bad("a value that is no number", "a,b\n1,x\n 2,y\n3,z\n", {3: f"a: {number(' 2')}"}, (1, "x"), (3, "z")),
    bad("too few values", "a,b\n1,x\n3\n4,y\n", {3: "2 columns, 1 values"}, (1, "x"), (4, "y")),
    bad("too many values", "a,b\n4,y,z\n5,w\n", {2: "2 columns, 3 values"}, (5, "w")),
    bad("a delimiter at the end", "a,b\n1,x,\n", {2: "2 columns, 3 values"}),
    bad("no UTF-8 in a value", b'a,b\n5,\xff\n6,"\xc3\xa9"\n', {2: "b: not UTF-8 at byte 0"}, (6, "é")),
    bad("no UTF-8 in a column that nothing wants", b"a,c\n5,\xff\n", {}, (5, None)),
    bad(
        "several records",
        b'a,b\n1,x\nx,"q,\n1"\n3\n4,y,z\n\n5,\xff\n6,"\xc3\xa9"\n0x10,h\n',
        {
            3: f"a: {number('x')}",
            4: "2 columns, 1 values",
            5: "2 columns, 3 values",
            6: "b: not UTF-8 at byte 0",
            8: f"a: {number('0x10')}",
        },
        (1, "x"),
        (6, "é"),
    ),
    bad(
        "NULL where the schema says NOT NULL",
        "a,b\n,x\n2,y\n",
        {2: "a: NULL, and the schema says NOT NULL"},
        (2, "y"),
        schema="a bigint NOT NULL, b string",
    ),
]
FAILED = [
    bad("none of the columns", "c,d\n1,2\n", {None: "it has none of the columns a, b; its columns: c, d"}),
    bad("a column twice", "a,a\n1,2\n", {None: "column a is in its header twice"}),
    bad("an open quote with records behind", 'a,b\n1,"open\n2,y\n', {None: "row 2: a quote is never closed"}),
    bad("an open quote at the end", 'a,b\n1,"open', {None: "row 2: a quote is never closed"}),
    bad("letters behind a quote", 'a,b\n1,"x"z\n', {None: "row 2: a value continues after its closing quote"}),
    bad("a blank behind a quote", 'a,b\n1,"x" ,\n', {None: "row 2: a value continues after its closing quote"}),
    bad("more columns than the schema", "1,2,3\n", {None: "3 columns; the schema has 2"}, csv={"header": False}),
    bad("a header that is no UTF-8", b"a,\xff\n1,2\n", {None: "the name of a column is not UTF-8 at byte 0"}),
    bad(
        "no column where the schema says NOT NULL",
        "b\nx\n",
        {None: "it lacks column a, which the schema declares NOT NULL"},
        schema="a bigint NOT NULL, b string",
    ),
    bad("no text", b"PAR1\x15\x04\x15\x00\n", {None: "it has none of the columns a, b; its columns: …"}),
]
VALUES = [
    exact("tinyint", "-128", -128),
    refused("tinyint", "128", "128 is no int8"),
    exact("bigint", "007", 7),
    exact("bigint", "+5", 5),
    exact("bigint", "-0", 0),
    exact("bigint", "5.0", 5),
    exact("bigint", "1e2", 100),
    exact("bigint", "9223372036854775807", 2**63 - 1),
    refused("bigint", "9223372036854775808", "9223372036854775808 is no int64"),
    refused("bigint", "1.5", "1.5 is no int64"),
    refused("bigint", "0x10", number("0x10")),
    refused("bigint", "1_000", number("1_000")),
    refused("bigint", "1,000", number("1,000")),
    refused("bigint", "\u0661", number("\u0661")),
    refused("int", " 5", number(" 5")),
    refused("int", "", number("")),
    exact("boolean", "true", True),
    exact("boolean", "TRUE", True),
    exact("boolean", "False", False),
    refused("boolean", "1", "expected true or false, found the text '1'"),
    refused("boolean", "yes", "expected true or false, found the text 'yes'"),
    exact("double", "1.50", 1.5),
    exact("double", "-0", -0.0),
    exact("double", ".5", 0.5),
    exact("double", "1e-400", 0.0),
    exact("double", "NaN", float("nan")),
    exact("double", "Infinity", float("inf")),
    exact("double", "-Infinity", float("-inf")),
    exact("float", "NaN", float("nan")),
    exact("float", "0.5", 0.5),
    refused("double", "1e400", "1e400 is beyond double"),
    refused("double", "inf", number("inf")),
    refused("double", "nan", number("nan")),
    refused("double", "1,5", number("1,5")),
    refused("float", "1e39", "1e39 is beyond float"),
    exact("decimal(5,2)", "1.5", Decimal("1.50")),
    exact("decimal(5,2)", "+1.500", Decimal("1.50")),
    exact("decimal(5,2)", "-.5", Decimal("-0.50")),
    exact("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    exact("decimal(38,10)", "1e27", Decimal("1000000000000000000000000000.0000000000")),
    exact("decimal(20,3)", "12345678901234567.891", Decimal("12345678901234567.891")),
    refused("decimal(5,2)", "1.234", "1.234 does not fit decimal(5,2)"),
    refused("decimal(5,2)", "1234.5", "1234.5 does not fit decimal(5,2)"),
    refused("decimal(38,10)", "1e28", "1e28 does not fit decimal(38,10)"),
    refused("decimal(38,0)", "1" + "0" * 38, f"1{'0' * 38} does not fit decimal(38,0)"),
    refused("decimal(5,2)", "NaN", "expected a number or a text that is one, found the text 'NaN'"),
    exact("binary", "AP8=", b"\x00\xff"),
    refused("binary", "AP8", "no base64"),
    exact("string", "null", "null"),
    exact("string", "007", "007"),
    exact("string", '{"x": 1}', '{"x": 1}'),
    exact("array<int>", "[1, null]", [1, None]),
    exact("array<date>", '["2026-03-02"]', [dt.date(2026, 3, 2)]),
    exact("struct<x int>", '{"x": 1, "y": 2}', {"x": 1}),
    exact("map<string,int>", '{"x": 1}', [("x", 1)]),
    refused("struct<x int>", '{"x": "y"}', "x: expected a number, found the text 'y'"),
    refused("array<int>", "1;2", "no JSON: more after the value at character 1"),
    refused("array<int>", "[1", "no JSON: Expecting ',' delimiter at character 2"),
    refused("array<double>", "[NaN]", "NaN is not JSON"),
]
CASES = [*RECORDS, *BAD, *FAILED, *VALUES]
