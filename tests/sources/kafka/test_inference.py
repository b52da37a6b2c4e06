"""JSON without a schema: columns are found in the messages, kept, and only ever added to."""

from __future__ import annotations

from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState
from headwater.model.position.window import Window
from headwater.testing import marks as laws
from tests.sources.kafka.poller import Poller, send
from tests.support.stack import KafkaForTests


def test_marks_with_columns_keep_the_laws():
    a = OffsetsMark({"t": {0: 1}}, {}, {"t": StreamState(columns={"x": (0, "bigint")})})
    wider = StreamState(columns={"x": (0, "string"), "y": (1, "double")})
    b = OffsetsMark({"t": {0: 2}}, {}, {"t": wider, "u": StreamState()})
    c = OffsetsMark({})
    laws.check_join_is_commutative(a, b)
    laws.check_join_is_associative(a, b, c)
    laws.check_join_is_idempotent(b)
    laws.check_join_is_the_least_upper_bound(a, b, c)
    window = Window(a, b)
    assert Window.from_json(window.to_json()) == window


def test_columns_are_found_kept_over_restarts_and_added_to(kafka: KafkaForTests):
    topic = kafka.topic()
    send(kafka.brokers, topic, [b'{"id": 1, "name": "a"}', b'{"id": 2, "at": {"x": [1, 2.50]}}'])
    poller = Poller(kafka.brokers, topic, format="json", metadata=[])
    assert poller.poll() == [
        {"id": 1, "name": "a", "at": None},
        {"id": 2, "name": None, "at": '{"x":[1,2.50]}'},
    ]
    send(kafka.brokers, topic, [b'{"id": 3, "new": true}', b'{"id": "four"}'])
    other = poller.again()
    window = other.look()
    assert other.poll() == [{"id": 3, "name": None, "at": None, "new": True}]
    assert [reject.reason for reject in other.rejects] == ["id: expected a number, found the text 'four'"]
    send(kafka.brokers, topic, [b'{"id": 5, "newer": 1}'])
    again = poller.again()
    assert list(again.read(window)[topic].column_names) == ["id", "name", "at", "new"]  # G5
    rewound = other.source.position("earliest", other.mark)
    assert rewound.streams == other.mark.streams  # type: ignore[union-attr]
