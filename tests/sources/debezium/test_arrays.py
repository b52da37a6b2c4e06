"""Arrays in events without schemas are the same JSON texts, however they are parsed."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.sources.debezium.decoder import EventDecoder, EventFormat
from headwater.sources.json.strict import document, rule_of
from tests.sources.debezium.reading import Stream, as_bytes, event, messages_of, rows

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = st.one_of(
    st.none(),
    TEXTS,
    st.lists(st.none() | TEXTS, max_size=3),
    st.lists(st.none() | st.integers(-(2**64), 2**64), max_size=3),
    st.lists(st.booleans(), max_size=2),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=2),
    st.lists(st.integers(0, 3) | TEXTS, max_size=3),
    st.lists(st.lists(st.integers(0, 3), max_size=2), max_size=2),
    st.dictionaries(st.sampled_from("xy"), st.integers(0, 3)),
)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=60), st.integers(1, 60))
def test_arrays_are_the_texts_that_json_says(values, size):
    stream = Stream(key=["id"])
    stream.columns = {"id": (0, "bigint"), "v": (1, "string")}
    stream.key = ("id",)
    events = [{"value": event("c", {"id": n, "v": value})} for n, value in enumerate(values)]
    made = [row for n in range(0, len(events), size) for row in rows(stream.decode(messages_of(events[n : n + size])))]
    exact = rule_of(pa.string())
    wanted = [dict(document(as_bytes({"v": value})))["v"] for value in values]
    assert [row["id"] for row in made] == list(range(len(values)))
    assert [row["v"] for row in made] == [None if value is None else exact(value) for value in wanted]


def test_a_column_of_arrays_does_not_send_every_event_to_the_closer_look():
    stream = Stream(key=["id"])
    events = [{"value": event("c", {"id": n, "tags": ["a", str(n)], "ns": [n]})} for n in range(2_000)]
    events[1_000]["value"]["after"]["tags"] = "not an array"
    stream.look(messages_of(events))
    decoder = EventDecoder(EventFormat("t", stream.table, stream.key))
    made = rows(decoder.decode(messages_of(events)))
    (learning,) = decoder._shapes.values()
    assert not learning._learnt.slow
    assert json.loads(made[7]["tags"]) == ["a", "7"]
    assert made[1_000]["tags"] == "not an array"
    assert made[1_999]["ns"] == "[1999]"
