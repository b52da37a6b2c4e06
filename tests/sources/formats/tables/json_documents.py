"""JSON in files: lines, documents, arrays, objects one after the other."""

from __future__ import annotations

from tests.sources.formats.case import Case, File, Number, case


def good(name: str, content: bytes, *values: int | None, **options: str) -> Case:
    return case(name, "json", File(content), [(value,) for value in values], schema="a bigint", **options)


def bad(name: str, content: bytes, reason: str, **options: str) -> Case:
    """The whole object fails."""
    return case(name, "json", File(content), rejects={None: reason}, schema="a bigint", **options)


def mixed(name: str, content: bytes, values: list[int | None], rejects: dict[Number, str], **options: str) -> Case:
    rows = [(value,) for value in values]
    return case(name, "json", File(content), rows, rejects=rejects, schema="a bigint", **options)


LINES = [
    good("lines", b'{"a": 1}\n{"a": 2}\n', 1, 2),
    good("no newline at the end", b'{"a": 1}\n{"a": 2}', 1, 2),
    good("carriage returns", b'{"a": 1}\r\n{"a": 2}\r\n', 1, 2),
    good("a mark of UTF-8 in front of lines", b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n', 1, 2),
    good("blank lines", b'\n\n{"a": 1}\n \t\n{"a": 2} \n\n', 1, 2),
    good("one line", b'{"a": 1}', 1),
    good("lines without a field", b"{}\n{}\n", None, None),
    good("a file of nothing", b""),
    good("a file of blanks", b"\n\r\n  "),
    mixed("an array on a later line", b'{"a": 1}\n[{"a": 2}]', [1], {2: "expected an object, found an array"}),
    mixed(
        "a line that ends too soon",
        b'{"a": 1}\n{"a": 2\n{"a": 3}\n',
        [1, 3],
        {2: "no JSON: Expecting ',' delimiter at character 7"},
    ),
    mixed(
        "only the first line is broken",
        b'{"a": \n{"a": 2}\n{"a": 3}\n',
        [2, 3],
        {1: "no JSON: Expecting value at character 5"},
    ),
    mixed(
        "numbers of lines count blank ones",
        b'\n{"a": 1}\n\n{"a": "x"}\n',
        [1],
        {4: "a: expected a number, found the text 'x'"},
    ),
    mixed(
        "two objects on a line",
        b'{"a": 1}\n{"a": 2}{"a": 3}\n',
        [1],
        {2: "no JSON: more after the value at character 8"},
    ),
    mixed(
        "lines, as the settings say",
        b'{"a": 1}\n{"a": 2}\nx\n',
        [1, 2],
        {3: "no JSON: Expecting value at character 0"},
        json_as="lines",
    ),
    mixed(
        "an array read as lines",
        b'{"a": 1}\n[\n{"a": 2}\n]\n',
        [1, 2],
        {2: "no JSON: Expecting value at character 1", 4: "no JSON: Expecting value at character 0"},
        json_as="lines",
    ),
]
DOCUMENTS = [
    good("an object over several lines", b'{\n  "a": 1\n}\n', 1),
    good("an array on one line", b'[{"a": 1}, {"a": 2}]', 1, 2),
    good("an array over several lines", b'[\n  {\n    "a": 1\n  },\n  {"a": 2}\n]\n', 1, 2),
    good("an array with commas on their own lines", b'[\n{"a": 1}\n,\n{"a": 2}\n]', 1, 2),
    good("an empty array", b"[]"),
    good("a mark of UTF-8 in front of an array", b'\xef\xbb\xbf[{"a": 1}]', 1),
    good("objects one after the other over lines", b'{"a":\n1}\n{"a":\n2}', 1, 2),
    good("objects one after the other on a line", b'{"a": 1}{"a": 2} {"a": 3}', 1, 2, 3),
    good("arrays one after the other", b'[{"a": 1}][{"a": 2}]\n{"a":\n3}', 1, 2, 3),
    good("an object inside does not count", b'{"b":\n{"a": 1}\n}', None),
    good("a document, as the settings say", b'{"a": 1}\n{"a": 2}\n', 1, 2, json_as="document"),
    mixed(
        "elements have numbers",
        b'[{"a": 1}, 5, {"a": "x"},\n {"a": 4}]',
        [1, 4],
        {2: "expected an object, found the number 5", 3: "a: expected a number, found the text 'x'"},
    ),
    mixed("null in an array", b'[{"a": 1}, null]', [1], {2: "expected an object, found null"}),
    mixed("an array in an array", b'[{"a": 1}, [{"a": 2}]]', [1], {2: "expected an object, found an array"}),
]
FAILED = [
    bad("no text", b"\x89PNG\r\n\x1a\n\x00\x00", "not UTF-8 at byte 0"),
    bad("an object that ends too soon", b'{"a": 1, "b', "no JSON: Unterminated string starting at at character 9"),
    bad("an array that ends too soon", b'[{"a": 1}, {"a": 2}', "no JSON: expected ',' or ']' at character 19"),
    bad("an array without a comma", b'[{"a": 1} {"a": 2}]', "no JSON: expected ',' or ']' at character 10"),
    bad("an array with a comma too many", b'[{"a": 1},]', "no JSON: Expecting value at character 10"),
    bad("an array of numbers", b"[1, 2]", "no JSON object in it: expected an object, found the number 1"),
    bad("a file of null", b"null", "no JSON object in it: expected an object, found null"),
    bad("UTF-16", '{"a": 1}'.encode("utf-16-le"), "no JSON: Expecting property name enclosed in double quotes at …"),
    bad("UTF-16 with its mark", '{"a": 1}'.encode("utf-16"), "UTF-16; only UTF-8 is supported"),
    bad("a file of too many levels", b"[" * 100_000, "nested too deeply"),
    bad("words", b"hello\nworld\n", "no JSON: Expecting value at character 0"),
    bad("an object over lines that ends too soon", b'{\n "a": 1,\n "b": {\n', "no JSON: …"),
    bad(
        "lines read as a document",
        b'{"a": 1}\n{"a": 2}\nx\n',
        "no JSON: Expecting value at character 18",
        json_as="document",
    ),
]
INFERRED = [
    case(
        "columns of an array",
        "json",
        File(b'[{"a": 1, "b": {"c": [1.0]}},\n {"a": 2.5, "late": true}]'),
        [(1.0, '{"c":[1.0]}', None), (2.5, None, True)],
        columns="a double, b string, late boolean",
    ),
    case(
        "columns of objects one after the other",
        "json",
        File(b'{"a": 1}{"a": "x", "b": 2}'),
        [("1", None), ("x", 2)],
        columns="a string, b bigint",
    ),
    case("columns behind a mark of UTF-8", "json", File(b'\xef\xbb\xbf{"a": 1}\n'), [(1,)], columns="a bigint"),
    case("columns of nothing", "json", File(b""), columns=""),
    case(
        "columns of a file that is no JSON",
        "json",
        File(b"hello"),
        columns="",
        rejects={None: "no JSON: Expecting value at character 0"},
    ),
]
CASES = [*LINES, *DOCUMENTS, *FAILED, *INFERRED]
