"""Arrays in events without schemas are the same JSON texts, however they are parsed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.sources.debezium.column_types import FieldType
from headwater.sources.debezium.decoder import SchemalessDecoder, ShapeDecoder
from headwater.sources.debezium.envelope import Envelopes, layout_of
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


@given(st.lists(VALUES, min_size=1, max_size=60), st.integers(1, 60))
def test_arrays_are_the_texts_that_json_says(values, size):
    stream = Stream(key=["id"])
    stream.columns = {"id": (0, "bigint"), "v": (1, "string")}
    stream.key = ("id",)
    events = [{"value": event("c", {"id": n, "v": value})} for n, value in enumerate(values)]
    decoded = [
        row for n in range(0, len(events), size) for row in rows(stream.decode(messages_of(events[n : n + size])))
    ]
    exact = rule_of(pa.string())
    wanted = [dict(document(as_bytes({"v": value})))["v"] for value in values]
    assert [row["id"] for row in decoded] == list(range(len(values)))
    assert [row["v"] for row in decoded] == [None if value is None else exact(value) for value in wanted]


def test_a_column_of_arrays_does_not_need_the_strict_parser_for_every_event():
    stream = Stream(key=["id"])
    events = [{"value": event("c", {"id": n, "tags": ["a", str(n)], "ns": [n]})} for n in range(2_000)]
    events[1_000]["value"]["after"]["tags"] = "not an array"
    messages = messages_of(events)
    stream.look(messages)
    ((shape, group),) = Envelopes().grouped(messages.values).items()
    layout = layout_of(shape, stream.table, stream.settings, declared=False)
    decoders: list[ShapeDecoder] = []

    def decoder(types: Mapping[str, FieldType]) -> ShapeDecoder:
        decoders.append(ShapeDecoder(layout.with_field_types(types), stream.table, stream.key, stream.settings))
        return decoders[-1]

    rejects: list[str] = []
    parts = SchemalessDecoder(decoder).rows(group, messages, lambda _, reason: rejects.append(reason))
    assert [one.strict_only for one in decoders] == [False, False]  # the one for arrays reads all but one event
    assert [part.num_rows for part, _ in parts] == [1_999, 1]
    assert rejects == []
    decoded = rows(stream.decode(messages))
    assert json.loads(decoded[7]["tags"]) == ["a", "7"]
    assert decoded[1_000]["tags"] == "not an array"
    assert decoded[1_999]["ns"] == "[1999]"
