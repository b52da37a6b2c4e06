"""JSON objects of a store: lines and documents, joined or alone, exactly or set aside (G8)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.strict import StrictJson
from headwater.sources.objects.formats.json import JsonObjects
from headwater.sources.values import Misfit
from tests.sources.objects.object_folder import ObjectFolder

SCHEMA = "a bigint, b string"


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def values(rows: list[dict]) -> list:
    return [row["a"] for row in rows]


def test_objects_that_end_in_the_midst_of_a_line_do_not_run_into_the_next(folder: ObjectFolder):
    folder.put("1", b'{"a": 1}\n{"a": 2')
    folder.put("2", b'2}\n{"a": 3}\n')
    folder.put("3", b'{"a": 4}\n{"a":')
    folder.put("4", b"5}")
    folder.put("5", b'{"a": 6}')
    folder.put("6", b'{"a": 7}')
    assert sorted(values(folder.rows(schema=SCHEMA))) == [1, 3, 4, 6, 7]
    assert set(folder.reasons()) == {("1", 2), ("2", 1), ("3", 2), ("4", None)}


def test_metadata_says_where_a_row_comes_from(folder: ObjectFolder):
    folder.put("a b/%1.json", b'{"a": 1}\n{"a": 2}\n')
    folder.put("ü.json", b'\n{"a": 3}\n')
    rows = folder.rows(schema="a bigint", metadata={"url": "u", "etag": "e", "modified": "m", "row": "n"})
    base = folder.container.address
    assert [(row["a"], row["u"], row["n"]) for row in rows] == [
        (1, f"{base}a b/%1.json", 1),
        (2, f"{base}a b/%1.json", 2),
        (3, f"{base}ü.json", 2),
    ]
    assert {row["m"].isoformat() for row in rows} == {"2026-03-02T08:00:00+00:00"}
    assert [row["e"] for row in rows] == [
        folder.container.stat(k).etag for k in ("a b/%1.json", "a b/%1.json", "ü.json")
    ]


def test_bad_rows_are_set_aside_with_object_and_line_and_the_rest_are_rows(folder: ObjectFolder):
    for number in range(200):
        folder.put(f"{number:03}.jsonl", b"".join(b'{"a": %d}\n' % (number * 10 + n) for n in range(10)))
    folder.put("017.jsonl", b'{"a": 170}\n{"a": "x"}\n\n{"a": 171\r\n{"a": 172}\n')
    folder.put("150.jsonl", b'{"a": 1.5}')
    rows = folder.rows(schema="a bigint")
    expected = {n for n in range(2000) if n // 10 not in {17, 150}} | {170, 172}
    assert sorted(values(rows)) == sorted(expected)
    assert folder.reasons() == {
        ("017.jsonl", 2): "a: expected a number, found the text 'x'",
        ("017.jsonl", 4): "no JSON: Expecting ',' delimiter at character 9",
        ("150.jsonl", 1): "a: 1.5 is no int64",
    }
    bad = next(r for r in folder.rejects if r.location["row"] == 4)
    assert bad.payload == b'{"a": 171'
    assert not bad.part
    assert bad.more["key"] == "017.jsonl"


def test_each_of_many_objects_with_bad_values_is_found(folder: ObjectFolder):
    for number in range(500):
        value = b'"x"' if number % 7 == 3 else b"1.5" if number % 11 == 5 else b"%d" % number
        folder.put(f"{number:03}", b'{"a": %d}\n{"a": %s}\n' % (number, value))
    bad = {number for number in range(500) if number % 7 == 3 or number % 11 == 5}
    rows = folder.rows(schema="a bigint")
    assert sorted(values(rows)) == sorted([*range(500), *(n for n in range(500) if n not in bad)])
    assert set(folder.reasons()) == {(f"{number:03}", 2) for number in bad}


def test_bad_elements_of_a_document_are_set_aside_by_their_number(folder: ObjectFolder):
    folder.put("x", b'[{"a": 1}, 5, {"a": "x"},\n {"a": 4, "b": {"c": [1.0]}}]')
    rows = folder.rows(schema=SCHEMA, metadata=["row"])
    assert [(row["a"], row["b"], row["object_row"]) for row in rows] == [(1, None, 1), (4, '{"c":[1.0]}', 4)]
    assert {(r.location["row"], r.payload) for r in folder.rejects} == {(2, b"5"), (3, b'{"a": "x"}')}


def test_a_huge_line_is_a_row(folder: ObjectFolder):
    text = "x" * 20_000_000
    folder.put("x", b'{"a": 1, "b": "' + text.encode() + b'"}\n{"a": 2}\n')
    rows = folder.rows(schema=SCHEMA)
    assert values(rows) == [1, 2]
    assert rows[0]["b"] == text


def oracle(content: bytes) -> list:
    """Line by line, with Python's own json: (number, row), row None for a bad line."""
    strict, rows = StrictJson(schema_of(DDL)), []
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip(b" \t\r"):
            continue
        try:
            rows.append((number, strict.batch([strict.row(line)]).to_pylist()[0]))
        except Misfit:
            rows.append((number, None))
    return rows


DDL = "i bigint, s string, d decimal(9,3), f double, t timestamp, l array<int>"
lines = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "i": st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=2),
            "s": st.text(max_size=6),
            "d": st.decimals(-10_000_000, 10_000_000, places=3).map(str),
            "f": st.floats() | st.integers(),
            "t": st.sampled_from(["2026-03-02T08:00:00.5Z", "2026-03-02T08:00:00", 5]),
            "l": st.lists(st.none() | st.integers(-5, 5), max_size=3),
            "unknown": st.text(max_size=3) | st.floats(),
        },
    ).map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")),
    st.sampled_from([b"", b" ", b"\r", b"{}", b"{}{}", b"null", b"{", b"}", b'{"i":', b"1}", b'{"s": "\xff"}']),
    st.binary(max_size=8),
)
objects = st.builds(
    lambda some_lines, end, last, mark: mark + end.join(some_lines) + (end if last else b""),
    st.lists(lines, max_size=6),
    st.sampled_from([b"\n", b"\r\n", b" \n"]),
    st.booleans(),
    st.sampled_from([b"", b"", b"\xef\xbb\xbf"]),
)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(objects, max_size=8))
@example([b'{"i": 1}{"i": 2}\n', b"\n", b'{"i": 3}'])
@example([b"\xfe\xff\n{}"])
@example([b'{"i": 1}\n{"unknown": NaN}', b'{"unknown": -Infinity}', b'{"unknown": Inf}'])
def test_many_objects_at_once_give_what_each_line_gives_alone(contents: list[bytes]):
    decoded = JsonObjects(schema_of(DDL), "lines").decode(contents)
    by_owner: dict[int, list] = {owner: [] for owner in range(len(contents))}
    for part in decoded.parts:
        owners = np.repeat(part.owners, part.counts).tolist()
        for owner, number, row in zip(owners, part.row_numbers().tolist(), part.rows.to_pylist(), strict=True):
            by_owner[owner].append((number, row))
    for bad in decoded.bad:
        by_owner[bad.owner].append((bad.number, None))
    for owner, content in enumerate(contents):
        expected = oracle(content)
        if owner in decoded.failed:
            assert expected
            assert not any(row for _, row in expected)
        else:
            assert repr(sorted(by_owner[owner], key=lambda item: item[0])) == repr(expected)
