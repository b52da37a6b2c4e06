"""A window of several topics taken apart: two windows that hold what the whole one holds, and no topic twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.position.window import Window
from headwater.sources.kafka.offsets import apart
from headwater.sources.kafka.rows import ranges

TOPICS = ("a", "b", "c.d")
OFFSETS = st.dictionaries(st.integers(0, 2), st.integers(0, 9), max_size=3)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    begin = {topic: draw(OFFSETS) for topic in TOPICS if draw(st.booleans())}
    known = {"a": StreamState(columns={"x": (1, "int")}, key_positions={"x": 1})}
    start = OffsetsMark(begin, {topic: f"id {topic}" for topic in begin}, known if "a" in begin else {})
    further = {topic: draw(OFFSETS) for topic in TOPICS}
    learned = {
        "b": StreamState(columns={"y": (1, "string")}, key_positions={"y": 1}),
        "a": StreamState(columns={"x": (1, "bigint"), "z": (2, "date")}),
    }
    return Window(start, start.join(OffsetsMark(further, {topic: f"id {topic}" for topic in further}, learned)))


@given(windows(), st.frozensets(st.sampled_from(TOPICS)))
def test_both_parts_hold_what_the_whole_holds(window: Window, names: frozenset[str]) -> None:
    part, rest = apart(window, names)
    everything = ranges(window)
    assert ranges(part) == [one for one in everything if one.topic in names]
    assert ranges(rest) == [one for one in everything if one.topic not in names]
    assert rest.end.join(part.end) == window.end
    assert window.end.covers(rest.end)
    assert rest.end.covers(window.start)
    for topic in names:
        assert rest.end.topics.get(topic) == window.start.topics.get(topic)
        assert part.end.streams.get(topic) == window.end.streams.get(topic)
        assert rest.end.streams.get(topic) == window.start.streams.get(topic)


@given(windows(), st.frozensets(st.sampled_from(TOPICS)))
def test_parts_are_the_same_when_they_come_from_a_store(window: Window, names: frozenset[str]) -> None:
    stored = Window.from_json(window.to_json())
    assert [one.id for one in apart(stored, names)] == [one.id for one in apart(window, names)]
