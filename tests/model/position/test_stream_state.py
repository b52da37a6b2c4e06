"""What marks remember of streams: its join keeps the laws, and its stored form is that of 0.1.0."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import InputError, StoreDamaged
from headwater.model.position.marks import LsnMark, Mark, ObjectsMark, OffsetsMark, mark_from_json
from headwater.model.position.stream_state import StreamState, TableState, columns_learned, numbered, positions
from headwater.testing.marks import check_all_laws, check_covers_is_total

lean = settings(max_examples=100)

NAMES = st.sampled_from(["id", "b", " key id", "ü"])
TYPES = st.sampled_from(["int", "bigint", "double", "decimal(9,2)", "decimal(12,2)", "array<bigint>", "string"])
COLUMNS = st.dictionaries(NAMES, st.tuples(st.integers(0, 3), TYPES), max_size=3)
KEYS = st.dictionaries(st.sampled_from(["id", "b", "c"]), st.integers(0, 2), max_size=3)
STATES = st.builds(StreamState, columns=COLUMNS, key_positions=KEYS)
TABLES = st.builds(
    TableState,
    oid=st.integers(1, 3),
    copied=st.integers(0, 2**40),
    copied_to=st.none() | st.integers(0, 9),
    columns=st.dictionaries(NAMES, TYPES, max_size=3).map(numbered),
    shape=COLUMNS,
    key_positions=st.lists(NAMES, unique=True, max_size=3).map(positions),
    leaves=st.lists(st.integers(1, 9), max_size=2).map(tuple),
    published=st.just("16390/"),
    stale=st.sampled_from(["", "its key is now (b)"]),
    landed=st.none() | st.integers(0, 9),
)
OFFSETS = st.builds(
    OffsetsMark,
    st.dictionaries(st.sampled_from(["t", "t-x"]), st.dictionaries(st.integers(0, 2), st.integers(0, 3), max_size=2)),
    st.dictionaries(st.sampled_from(["t", "t-x"]), st.sampled_from(["x", "y"])),
    st.dictionaries(st.sampled_from(["t", "t-x", "u"]), STATES, max_size=3),
)
# A key's column and a column called " key …" would be stored under one name.
OBJECTS = st.builds(
    lambda state, **numbers: ObjectsMark(**numbers).with_state(state),
    STATES.filter(lambda state: not ("id" in state.key and " key id" in state.columns)),
    generation=st.integers(0, 3),
    turn=st.integers(0, 1),
    feed=st.none() | st.just({"file": "a"}),
)
LSNS = st.builds(
    LsnMark,
    lsn=st.integers(0, 2),
    era=st.integers(0, 1),
    streams=st.dictionaries(st.sampled_from(["public.a", "public.b"]), TABLES, max_size=2),
)


@lean
@given(STATES, STATES, STATES)
def test_the_join_of_states_keeps_the_laws(a: StreamState, b: StreamState, c: StreamState) -> None:
    assert a.join(a) == a
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))


@lean
@given(OFFSETS, OFFSETS, OFFSETS)
def test_marks_of_offsets_with_states_keep_the_laws(a: OffsetsMark, b: OffsetsMark, c: OffsetsMark) -> None:
    check_all_laws(a, b, c)


@lean
@given(OBJECTS, OBJECTS, OBJECTS)
def test_marks_of_objects_with_states_keep_the_laws(a: ObjectsMark, b: ObjectsMark, c: ObjectsMark) -> None:
    check_all_laws(a, b, c)
    check_covers_is_total(a, b)


@lean
@given(LSNS, LSNS, LSNS)
def test_marks_of_a_slot_with_states_keep_the_laws(a: LsnMark, b: LsnMark, c: LsnMark) -> None:
    check_all_laws(a, b, c)
    check_covers_is_total(a, b)


@lean
@given(OFFSETS, OFFSETS)
def test_the_join_is_that_of_0_1_0_on_the_stored_form(a: OffsetsMark, b: OffsetsMark) -> None:
    one, other = (mark.to_json().get("columns", {}) for mark in (a, b))
    joined: dict[str, Any] = {entry: dict(columns) for entry, columns in one.items()}
    for entry, columns in other.items():
        mine = joined.setdefault(entry, {})
        mine.update({name: max(kind, mine.get(name, kind), key=width_in_0_1_0) for name, kind in columns.items()})
    # 0.1.0 never stored a stream without columns, unless it had no key either.
    expected = {entry: columns for entry, columns in joined.items() if columns or f"{entry} key" not in joined}
    assert a.join(b).to_json().get("columns", {}) == expected


def width_in_0_1_0(column: list[Any]) -> tuple[int, int, str]:
    number, kind = column
    pattern = re.compile(r"\b(?:bigint|double)\b|\bdecimal\((\d+)")
    return number, sum(int(match[1] or 1) for match in pattern.finditer(kind)), kind


@lean
@given(OFFSETS, STATES)
def test_a_position_is_covered_whatever_is_remembered_of_streams(mark: OffsetsMark, state: StreamState) -> None:
    other = OffsetsMark(mark.topics, mark.ids, {"t": state})
    assert mark.covers(other)
    assert other.covers(mark)


def test_a_key_keeps_its_order_and_columns_theirs() -> None:
    state = StreamState(columns={"b": (2, "int"), "a": (0, "date")}, key_positions=positions(["b", "a"]))
    assert state.key == ("b", "a")
    assert list(state.types.items()) == [("a", "date"), ("b", "int")]
    assert numbered(state.types) == {"a": (0, "date"), "b": (1, "int")}
    assert (StreamState().key, StreamState().types) == ((), {})


def test_a_column_with_a_name_like_a_stored_key_stays_a_column() -> None:
    mark = ObjectsMark(1).with_state(StreamState(columns={" key id": (0, "bigint")}, key_positions={"other": 0}))
    again = mark_from_json(json.loads(json.dumps(mark.to_json())))
    assert again == mark
    assert again.streams["objects"].key == ("other",)


@pytest.mark.parametrize("mark", [ObjectsMark(1), OffsetsMark({}), LsnMark(5)], ids=lambda mark: mark.kind)
def test_a_mark_that_remembers_nothing_has_no_streams(mark: Mark) -> None:
    assert mark.streams == {}
    assert "columns" not in mark.to_json()


@pytest.mark.parametrize(
    "data",
    [
        {**OffsetsMark({}).to_json(), "columns": {"t key": {"id": "key"}}},
        {**OffsetsMark({}).to_json(), "columns": ["t"]},
        {**OffsetsMark({}).to_json(), "columns": {"t": {"id": [0]}}},
        {**ObjectsMark(1).to_json(), "columns": {" key id": 7}},
        {**ObjectsMark(1).to_json(), "columns": {"id": ["x", "bigint"]}},
        {**LsnMark(5).to_json(), "tables": {"t": {}}},
        {**LsnMark(5).to_json(), "tables": {"t": {**TableState(1, 2).to_json(), "key": None}}},
        {**LsnMark(5).to_json(), "tables": {"t": {**TableState(1, 2).to_json(), "columns": [["id"]]}}},
    ],
    ids=str,
)
def test_a_state_that_cannot_be_read_is_damage(data: dict[str, Any]) -> None:
    with pytest.raises(StoreDamaged):
        mark_from_json(data)


def test_columns_that_a_window_inferred_anew_are_listed() -> None:
    before = {"t": StreamState(columns={"id": (0, "int"), "name": (1, "string")})}
    after = {"t": StreamState(columns={"id": (0, "bigint"), "name": (1, "string"), "tier": (2, "string")})}
    assert columns_learned(before, after) == ["t: id int → bigint", "t: new column tier string"]
    assert columns_learned({}, after) == columns_learned(after, after) == []
    first, later = (
        ObjectsMark(1).with_state(StreamState(columns={"a": (0, "bigint")})),
        ObjectsMark(2).with_state(StreamState(columns={"a": (0, "bigint"), "b": (1, "date")})),
    )
    assert columns_learned(first.streams, later.streams) == ["objects: new column b date"]
    declared = {"t": StreamState(key_positions={"a": 0})}
    inferred = {"t": StreamState(columns={"a": (0, "int")}, key_positions={"a": 0})}
    assert columns_learned(declared, inferred) == []


def test_a_key_that_changed_is_listed() -> None:
    before, after = (
        {"t": TableState(1, 0, columns=numbered({"a": "int"}), key_positions=positions(key))}
        for key in (["a"], ["b", "a"])
    )
    assert columns_learned(before, after) == ["t: key a → b, a"]


def test_a_column_with_the_stored_name_of_a_key_is_refused():
    """In an objects mark both would have one name, and a retry would read without the column (G5)."""
    state = StreamState(columns={"id": (0, "bigint"), " key id": (1, "string")}, key_positions={"id": 0})
    with pytest.raises(InputError, match="' key id' cannot stand beside the key id"):
        ObjectsMark(1).with_state(state)
    assert ObjectsMark(1).with_state(replace(state, key_positions={})).state.columns == state.columns
