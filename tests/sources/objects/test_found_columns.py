"""Columns found in objects: in all of them, with types that keep every value exactly."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.config.objects_source import ObjectsSource
from headwater.model.errors import InputError
from headwater.sources.json.found import observe, with_new
from headwater.sources.json.guessed import _has_long_numbers, guessed_kinds
from headwater.sources.objects.decoding import schema_of
from headwater.sources.objects.formats.csv_found import kinds_of
from headwater.sources.objects.formats.json_found import json_kinds
from headwater.sources.objects.found_columns import columns_after
from tests.sources.objects.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def found(shelf: Shelf, known: dict | None = None, **more: object) -> dict[str, tuple[int, str]]:
    return columns_after(
        known or {}, shelf.pages(), ObjectsSource(url=shelf.container.address, **more), shelf.container
    )


def test_every_object_of_the_window_is_looked_at(shelf: Shelf):
    for number in range(100):
        shelf.put(f"{number:03}", b'{"a": %d}\n' % number)
    shelf.put("050", b'{"a": 1.5, "late": true}\n{"a": null, "@odd": "x"}\n')
    shelf.put("070.gz", gzip.compress(b'[{"in": {"b": 1}},\n {"a": 2}]'))
    shelf.put("080.gz", b"bad")
    shelf.put("090", b"bad")
    columns = found(shelf)
    assert columns == {"a": (0, "double"), "late": (1, "boolean"), "@odd": (2, "string"), "in": (3, "string")}
    rows = shelf.rows(columns)
    assert len(rows) == 102
    assert {"a": None, "late": None, "@odd": None, "in": '{"b":1}', "object_url": shelf.container.url("070.gz")} in rows
    assert sorted(shelf.told()) == [("080.gz", None), ("090", None)]


def test_known_columns_stay_and_new_ones_come_behind(shelf: Shelf):
    shelf.put("a", b'{"new": "x", "old": "text"}')
    assert found(shelf, {"old": (3, "bigint")}) == {"old": (3, "bigint"), "new": (4, "string")}


def test_a_schema_that_is_written_is_the_schema(shelf: Shelf):
    shelf.put("a", b'{"new": "x"}')
    assert found(shelf, schema="a bigint") == {}
    assert found(shelf, format="text") == {}
    names = schema_of(ObjectsSource(url="file:///x/", schema="a bigint", metadata=["row"]), {}).names
    assert names == ["a", "object_row"]


def test_fields_that_cannot_be_columns_beside_each_other_are_refused(shelf: Shelf):
    shelf.put("a", b'{"id": 1, "ID": 2}')
    with pytest.raises(InputError, match="id, ID"):
        found(shelf)
    shelf.put("a", b'{"object_url": 1}')
    with pytest.raises(InputError, match="object_url"):
        found(shelf)


def test_large_objects_are_looked_at_in_chunks(shelf: Shelf, monkeypatch: pytest.MonkeyPatch):
    from headwater.sources.objects import found_columns  # noqa: PLC0415

    monkeypatch.setattr(found_columns, "_TOGETHER", 100)
    lines = b"".join(b'{"a": %d}\n' % number for number in range(1000))
    shelf.put("a", b"\xef\xbb\xbf" + lines + b'{"b": 1}')
    shelf.put("b", b"[" + b",".join(lines.split()[::2]) + b"]")
    assert list(found(shelf)) == ["a", "b"]


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


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(rows | bad, max_size=4).map(b"\n".join), max_size=6))
@example([b'{"a": 9007199254740993}\n{"a": 1.5}'])
@example([b'{"a": 9007199254740993}', b'{"a": 1.5}'])
@example([b'{"a": 1e-400}'])
def test_many_objects_at_once_have_the_kinds_that_each_row_has(contents: list[bytes]):
    expected: dict[str, set[str]] = {}
    for content in contents:
        observe(content.split(b"\n"), expected)
    kinds = json_kinds(contents, "lines", 1 << 20)
    assert with_new({}, kinds) == with_new({}, {name: expected[name] for name in kinds})
    assert {name for name, seen in kinds.items() if seen} == {name for name, seen in expected.items() if seen}


@given(st.text(st.sampled_from("123.x"), max_size=60))
def test_long_numbers_are_seen_wherever_they_stand(text: str):
    import re  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    assert _has_long_numbers(np.frombuffer(text.encode(), np.uint8)) == bool(re.search(r"[0-9.]{16}", text))


def test_numbers_of_many_digits_are_left_to_the_closer_look_only_where_they_may_be_doubles():
    assert guessed_kinds(b'{"a": 1234567890123456789, "b": "9999999999999999"}\n', 1) == {
        "a": {"long bigint"},
        "b": {"string"},
    }
    assert guessed_kinds(b'{"a": 1.5, "b": "9999999999999999"}\n', 1) is None


@pytest.mark.parametrize(
    ("texts", "kinds"),
    [
        (["1", "-5", "0"], {"bigint"}),
        (["9007199254740993"], {"long bigint"}),
        (["9223372036854775808"], {"string"}),
        (["007"], {"string"}),
        (["+1"], {"string"}),
        (["-0"], {"string"}),
        (["1.5", "2"], {"bigint", "double"}),
        (["1.50"], {"string"}),
        (["2.0", "-0.5", "1e+16"], {"double"}),
        (["1e5"], {"string"}),
        (["0.1234567890123456789"], {"string"}),
        (["0.30000000000000004"], {"double"}),
        ([".5"], {"string"}),
        (["nan"], {"string"}),
        (["1.2.3"], {"string"}),
        (["true", "false"], {"boolean"}),
        (["True"], {"string"}),
        (["2026-03-02"], {"date"}),
        (["2026-02-30"], {"string"}),
        (["2026-03-02T08:00:00Z", "2026-03-02 08:00:00.5Z"], {"timestamp"}),
        (["2026-03-02T08:00:00+02:00"], {"string"}),
        (["2026-03-02 08:00:00"], {"timestamp_ntz"}),
        (["2026-03-02 08:00:00.1234567"], {"string"}),
        (["2026-03-02", "5"], {"string"}),
        (["", "1"], {"string"}),
        ([None, None], set()),
        ([None, "1"], {"bigint"}),
        (["\xff"], {"string"}),
    ],
)
def test_a_type_of_csv_gives_its_texts_back(texts: list[str | None], kinds: set[str]):
    raw = [None if text is None else text.encode("latin-1") for text in texts]
    assert kinds_of(pa.array(raw, pa.binary())) == kinds


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("0123456789.-+e"), max_size=6) | st.floats().map(repr), min_size=1, max_size=3))
def test_numbers_found_in_csv_are_written_like_that(texts: list[str]):
    kinds = kinds_of(pa.array([text.encode() for text in texts], pa.binary()))
    if kinds & {"bigint", "double", "long bigint"}:
        for text in texts:
            assert text in {repr(float(text)), str(int(float(text))) if "." not in text and "e" not in text else ""}


def test_columns_of_csv_objects_with_and_without_a_header(shelf: Shelf):
    shelf.put("1", "id,price,code\n1,2.5,007\n")
    shelf.put("2", "code,id,extra,empty\nx,2,true,\n")
    shelf.put("3", 'id\n"open')
    columns = found(shelf, format="csv")
    assert {name: kind for name, (_, kind) in columns.items()} == {
        "id": "bigint",
        "price": "double",
        "code": "string",
        "extra": "boolean",
    }
    rows = shelf.rows(columns, format="csv", metadata=[])
    assert [tuple(row.values()) for row in rows] == [(1, 2.5, "007", None), (2, None, "x", True)]

    for key in "123":
        shelf.put(key, "1,,x\n2,,y\n")
    columns = found(shelf, format="csv", csv={"header": False})
    assert {name: kind for name, (_, kind) in columns.items()} == {"column1": "bigint", "column3": "string"}
    rows = shelf.rows(columns, format="csv", csv={"header": False}, metadata=[])
    assert [tuple(row.values()) for row in rows] == [(1, "x"), (2, "y")] * 3
