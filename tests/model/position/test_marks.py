"""Marks of every type keep the laws, and what cannot be read is damage."""

from __future__ import annotations

import copy
import datetime as dt
import uuid
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.errors import MarkMovedBack, StoreDamaged
from headwater.model.position.marks import (
    ColumnMark,
    StreamsMark,
    mark_from_json,
)
from headwater.model.position.seen_rows import SeenDigests, SeenTransactions
from headwater.model.progress import Progress
from headwater.model.types import CursorType
from headwater.testing.marks import check_all_laws, check_covers_is_total, check_join_is_commutative

ZONES = st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=14)), dt.timezone(-dt.timedelta(hours=9, minutes=30))])
VALUES = {
    CursorType.INTEGER: st.integers() | st.sampled_from([-(2**63), 2**63 - 1, 2**200, -1, 0]),
    CursorType.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False)
    | st.sampled_from([Decimal("1.1"), Decimal("1.10"), Decimal("1E+2"), Decimal(100), Decimal("-0"), Decimal(0)]),
    CursorType.DATE: st.dates(),
    CursorType.TIMESTAMP: st.datetimes(),
    # A day away from the edges: the zone may move the instant out of what Python can hold.
    CursorType.TIMESTAMPTZ: st.datetimes(
        min_value=dt.datetime(1, 1, 3), max_value=dt.datetime(9999, 12, 29), timezones=ZONES  # noqa: DTZ001
    ),
    CursorType.STRING: st.text() | st.sampled_from(["", "\x00", "\uffff", "\U00010000", "\U0010ffff", " 1 ", "é", "e\u0301"]),
    CursorType.UUID: st.uuids(),
}  # fmt: skip
SNAPSHOTS = st.none() | st.builds(
    SeenTransactions,
    cluster=st.just("7/5"),
    horizon=st.integers(min_value=3, max_value=6),
    pending=st.lists(st.integers(6, 9), max_size=2).map(tuple),
    bounds=st.just({}) | st.just({"low": "2026-01-01T00:00:00"}),
)


lean = settings(max_examples=60)


@st.composite
def column_marks(draw, kind: CursorType) -> ColumnMark:
    value = draw(st.none() | VALUES[kind])
    edge = draw(st.none() | st.builds(SeenDigests, st.just(value), st.frozensets(st.sampled_from(["a1", "b2"]))))
    return ColumnMark("c", kind, value, draw(SNAPSHOTS), edge)


def streams_marks():
    names = st.sampled_from(["public.a", "public.b", "ü.🌊"])
    return st.dictionaries(names, column_marks(CursorType.INTEGER), max_size=3).map(StreamsMark)


@pytest.mark.parametrize("kind", list(CursorType))
@lean
@given(data=st.data())
def test_marks_of_every_type_keep_the_laws(kind: CursorType, data: st.DataObject) -> None:
    a, b, c = (data.draw(column_marks(kind)) for _ in range(3))
    check_all_laws(a, b, c)
    check_covers_is_total(a, b)


@lean
@given(streams_marks(), streams_marks(), streams_marks())
def test_marks_of_several_streams_keep_the_laws(a: StreamsMark, b: StreamsMark, c: StreamsMark) -> None:
    check_all_laws(a, b, c)


@lean
@given(streams_marks(), streams_marks())
def test_a_stream_that_is_absent_stays(a: StreamsMark, b: StreamsMark) -> None:
    joined = a.join(b)
    for name in set(a.marks) - set(b.marks):
        assert joined.marks[name] == a.marks[name]
    assert set(joined.marks) == set(a.marks) | set(b.marks)


def test_losing_a_stream_is_moving_back() -> None:
    both = StreamsMark({"a": number(1), "b": number(1)})
    assert not StreamsMark({"a": number(9)}).covers(both)
    with pytest.raises(MarkMovedBack):
        Progress("p", mark=both).advanced(StreamsMark({"a": number(9)}))


@lean
@given(st.text(), st.text())
def test_strings_are_ordered_by_their_bytes(a: str, b: str) -> None:
    mark_a, mark_b = (ColumnMark("c", CursorType.STRING, text) for text in (a, b))
    assert mark_a.covers(mark_b) == (a.encode() >= b.encode())


@lean
@given(st.uuids(), st.uuids())
def test_uuids_are_ordered_by_their_bytes(a: uuid.UUID, b: uuid.UUID) -> None:
    mark_a, mark_b = (ColumnMark("c", CursorType.UUID, value) for value in (a, b))
    assert mark_a.covers(mark_b) == (a.bytes >= b.bytes)


def test_decimals_of_one_value_stand_at_one_place_and_keep_their_digits() -> None:
    short, long = (ColumnMark("c", CursorType.DECIMAL, Decimal(text)) for text in ("1.1", "1.10"))
    assert short.covers(long)
    assert long.covers(short)
    assert (short.to_json()["value"], long.to_json()["value"]) == ("1.1", "1.10")
    # The choice must not depend on who asks: windows are recognised by the text of their marks (G5).
    assert short.join(long).to_json() == long.join(short).to_json()


def test_one_instant_in_two_zones_is_one_text() -> None:
    here = dt.datetime(2026, 3, 29, 2, 30, 0, 1, dt.timezone(dt.timedelta(hours=2)))
    marks = [ColumnMark("c", CursorType.TIMESTAMPTZ, moment) for moment in (here, here.astimezone(dt.UTC))]
    assert marks[0].to_json() == marks[1].to_json()
    assert marks[0].to_json()["value"] == "2026-03-29T00:30:00.000001+00:00"


def test_marks_that_remember_different_things_of_one_place_join_alike() -> None:
    marks = [ColumnMark("c", CursorType.INTEGER, 1, SeenTransactions("7/5", 10, tx)) for tx in ((), (11,), (12,))]
    for a in marks:
        for b in marks:
            check_join_is_commutative(a, b)


def test_marks_of_another_column_or_type_cannot_be_compared() -> None:
    other_column = ColumnMark("d", CursorType.INTEGER, 1)
    other_type = ColumnMark("c", CursorType.STRING, "1")
    assert number(1).comparable(number(2))
    for other in (other_column, other_type, StreamsMark({})):
        assert not number(1).comparable(other)
        assert not StreamsMark({"a": number(1)}).comparable(StreamsMark({"a": other}))
        with pytest.raises(MarkMovedBack):
            Progress("p", mark=number(1)).advanced(other)
    assert StreamsMark({"a": number(1)}).comparable(StreamsMark({"b": other_type}))


@pytest.mark.parametrize("field", ["kind", "version", "column", "type", "value"])
@pytest.mark.parametrize("value", ["nonsense", [], {}, 2.5, None, "missing"], ids=repr)
def test_a_mark_that_cannot_be_read_is_damage(field: str, value: object) -> None:
    data = number(5).to_json()
    if value == "missing":
        del data[field]
    else:
        data[field] = value
    if (field, value) in [("value", None), ("column", "nonsense")]:
        return  # before every row; a column of that name
    with pytest.raises(StoreDamaged):
        mark_from_json(data)


@pytest.mark.parametrize("data", [None, [], "mark", 7, {}, {"version": 1}], ids=repr)
def test_what_is_no_mark_at_all_is_damage(data: object) -> None:
    with pytest.raises(StoreDamaged):
        mark_from_json(data)  # type: ignore[arg-type]


def test_damage_inside_a_stream_or_a_snapshot_is_damage() -> None:
    stored = StreamsMark({"a": ColumnMark("c", CursorType.INTEGER, 1, SeenTransactions("7/5", 10))}).to_json()
    for path in (["a", "snapshot", "horizon"], ["a", "snapshot", "pending"], ["a", "type"]):
        data = copy.deepcopy(stored)
        place = data["streams"]
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
        with pytest.raises(StoreDamaged):
            mark_from_json(data)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CursorType.INTEGER, "1.5"),
        (CursorType.DECIMAL, "NaN"),
        (CursorType.DECIMAL, "Infinity"),
        (CursorType.DATE, "2026-02-30"),
        (CursorType.TIMESTAMP, "2026-01-01T00:00:00+00:00"),
        (CursorType.TIMESTAMPTZ, "2026-01-01T00:00:00"),
        (CursorType.TIMESTAMPTZ, "9999-12-31T23:59:59-10:00"),
        (CursorType.UUID, "0190163d"),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused_with_an_example(kind: CursorType, text: str) -> None:
    with pytest.raises(ValueError, match="for example"):
        kind.from_json(text)


def number(value: int) -> ColumnMark:
    return ColumnMark("c", CursorType.INTEGER, value)
