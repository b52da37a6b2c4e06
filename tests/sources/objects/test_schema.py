"""Columns found in objects: in all of them, with types that keep every value exactly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError
from headwater.model.position.stream_state import StreamState
from headwater.sources.json.columns import guess_types, infer_values, observe, with_new
from headwater.sources.objects.content import ReadSettings
from headwater.sources.objects.formats.csv import types_of
from headwater.sources.objects.formats.json import infer_json
from headwater.sources.objects.schema import infer_state
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def inferred(folder: ObjectFolder, known: dict | None = None, **more: object) -> dict[str, tuple[int, str]]:
    state = infer_state(
        StreamState(columns=known or {}),
        folder.pages(),
        ObjectsSourceSettings(url=folder.container.address, **more),
        folder.container,
        folder.tuning,
    )
    return dict(state.columns)


def test_every_object_of_the_window_is_looked_at(folder: ObjectFolder):
    for number in range(100):
        folder.put(f"{number:03}", b'{"a": %d}\n' % number)
    folder.put("050", b'{"a": 1.5, "late": true}\n{"a": null, "@odd": "x"}\n')
    folder.put("070.gz", gzip.compress(b'[{"in": {"b": 1}},\n {"a": 2}]'))
    folder.put("080.gz", b"bad")
    folder.put("090", b"bad")
    columns = inferred(folder)
    assert columns == {"a": (0, "double"), "late": (1, "boolean"), "@odd": (2, "string"), "in": (3, "string")}
    rows = folder.rows(columns)
    assert len(rows) == 102
    assert {
        "a": None,
        "late": None,
        "@odd": None,
        "in": '{"b":1}',
        "object_url": folder.container.url("070.gz"),
    } in rows
    assert sorted(folder.reasons()) == [("080.gz", None), ("090", None)]


def test_a_schema_that_is_written_is_the_schema(folder: ObjectFolder):
    folder.put("a", b'{"new": "x"}')
    assert inferred(folder, schema="a bigint") == {}
    assert inferred(folder, format="text") == {}
    settings = ObjectsSourceSettings(url="file:///x/", schema="a bigint", metadata=["row"])
    names = ReadSettings.of(settings, StreamState(), "").schema.names
    assert names == ["a", "object_row"]


def test_fields_that_cannot_be_columns_beside_each_other_are_refused(folder: ObjectFolder):
    folder.put("a", b'{"id": 1, "ID": 2}')
    with pytest.raises(InputError, match="id, ID"):
        inferred(folder)
    folder.put("a", b'{"object_url": 1}')
    with pytest.raises(InputError, match="object_url"):
        inferred(folder)


def test_large_objects_are_looked_at_in_chunks(folder: ObjectFolder):
    folder.tuning = Tuning(infer_bytes=100)
    lines = b"".join(b'{"a": %d}\n' % number for number in range(1000))
    folder.put("a", b"\xef\xbb\xbf" + lines + b'{"b": 1}')
    folder.put("b", b"[" + b",".join(lines.split()[::2]) + b"]")
    assert list(inferred(folder)) == ["a", "b"]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e16, 0.1, 123456.789012, 1e-7]),
    st.text(max_size=4),
    st.sampled_from(["2026-03-02", "1234567890123456789"]),
    st.lists(st.integers(-3, 3) | st.text("ab", max_size=1), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(), max_size=2),
)
rows = st.dictionaries(st.sampled_from("abcd"), values, max_size=4).map(lambda row: json.dumps(row).encode())
bad = st.sampled_from([b"", b"{", b'{"a": 1e400}', b'{"a": 1.00000000000000000001}', b'{"a": NaN}', b'{"a":1,"a":"x"}'])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.lists(rows | bad, max_size=4).map(b"\n".join), max_size=6))
@example([b'{"a": 9007199254740993}\n{"a": 1.5}'])
@example([b'{"a": 9007199254740993}', b'{"a": 1.5}'])
@example([b'{"a": 1e-400}'])
def test_many_objects_at_once_have_the_kinds_that_each_row_has(contents: list[bytes]):
    expected: dict[str, set[str]] = {}
    for content in contents:
        observe(content.split(b"\n"), expected)
    seen_types = infer_json(contents, "lines", 1 << 20)
    assert with_new({}, seen_types) == with_new({}, {name: expected[name] for name in seen_types})
    assert {name for name, seen in seen_types.items() if seen} == {name for name, seen in expected.items() if seen}


numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
messages = st.lists(numbers.map(lambda number: b'{"a": %s}' % number.encode()), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=400)
@given(messages)
@example([b'{"a": 123456789012345678e-5}'])
@example([b'{"a": 1.5e-320}'])
@example([b'{"a":1234567.123456789}'])
def test_numbers_are_doubles_only_if_doubles_represent_every_digit(values: list[bytes]):
    values = [b'{"a": 0.5}', *values] * 10  # more than the strict parser reads at once
    at_once: dict[str, set[str]] = {}
    infer_values(values, at_once)
    one_by_one: dict[str, set[str]] = {}
    observe(values, one_by_one)
    assert with_new({}, at_once) == with_new({}, one_by_one)


def test_texts_of_many_digits_do_not_need_the_strict_parser():
    row = b'{"a": 1234567890123456789, "b": "9999999999999999", "c": 1.5, "d": "0000000e-1234-4000-8000-00000000000e"}'
    assert guess_types(row + b"\n", 1) == {"a": {"long bigint"}, "b": {"string"}, "c": {"double"}, "d": {"string"}}
    assert guess_types(b'{"a": 1.2345678901234567}\n', 1) is None


@given(st.lists(st.text(st.sampled_from("0123456789.-+e"), max_size=6) | st.floats().map(repr), min_size=1, max_size=3))
def test_numbers_found_in_csv_are_written_like_that(texts: list[str]):
    seen_types = types_of(pa.array([text.encode() for text in texts], pa.binary()))
    if seen_types & {"bigint", "double", "long bigint"}:
        for text in texts:
            assert text in {repr(float(text)), str(int(float(text))) if "." not in text and "e" not in text else ""}


def test_columns_of_csv_objects_with_and_without_a_header(folder: ObjectFolder):
    folder.put("1", "id,price,code\n1,2.5,007\n")
    folder.put("2", "code,id,extra,empty\nx,2,true,\n")
    folder.put("3", 'id\n"open')
    columns = inferred(folder, format="csv")
    assert {name: kind for name, (_, kind) in columns.items()} == {
        "id": "bigint",
        "price": "double",
        "code": "string",
        "extra": "boolean",
    }
    rows = folder.rows(columns, format="csv", metadata=[])
    assert [tuple(row.values()) for row in rows] == [(1, 2.5, "007", None), (2, None, "x", True)]

    for key in "123":
        folder.put(key, "1,,x\n2,,y\n")
    columns = inferred(folder, format="csv", csv={"header": False})
    assert {name: kind for name, (_, kind) in columns.items()} == {"column1": "bigint", "column3": "string"}
    rows = folder.rows(columns, format="csv", csv={"header": False}, metadata=[])
    assert [tuple(row.values()) for row in rows] == [(1, "x"), (2, "y")] * 3
