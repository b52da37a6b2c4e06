"""Notifications as object stores send them, and as they should not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.sources.objects.notifications.feed import Event, parse
from tests.sources.objects.objects_source import notification, record

_KEYS = ["a b.json", "a+b", "100%", "q?#x", "'\"", "é/日本/😀", "x/", "a\\b", "\t"]


@pytest.mark.parametrize("key", _KEYS)
def test_keys_come_out_as_they_are_in_the_bucket(key: str) -> None:
    parsed = parse(notification(record("shop", key)).encode())
    assert [(event.bucket, event.key) for event in parsed.events] == [("shop", key)]
    assert parsed.problems == []


def test_amazons_own_example_is_understood() -> None:
    content = {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "awsRegion": "us-west-2",
                "eventTime": "1970-01-01T00:00:01.500Z",
                "eventName": "ObjectCreated:Put",
                "s3": {
                    "configurationId": "testConfigRule",
                    "bucket": {"name": "amzn-s3-demo-bucket"},
                    "object": {"key": "Happy+Face%2B.jpg", "size": 1024, "eTag": "d41d8", "sequencer": "0055AED6"},
                },
            }
        ]
    }
    assert parse(json.dumps(content).encode()).events == [
        Event("amzn-s3-demo-bucket", "Happy Face+.jpg", removed=False, at=1.5)
    ]


def test_minios_frame_with_records_and_without() -> None:
    message = {
        "EventName": "s3:ObjectCreated:Put",
        "Key": "shop/a b",
        "Records": [record("shop", "a b", "s3:ObjectCreated:Put")],
    }
    assert [(event.bucket, event.key) for event in parse(json.dumps(message).encode()).events] == [("shop", "a b")]
    bare = {"EventName": "s3:ObjectRemoved:Delete", "Key": "shop/a+b/c"}
    assert parse(json.dumps(bare).encode()).events == [Event("shop", "a+b/c", removed=True, at=None)]


def test_an_envelope_is_opened() -> None:
    once = json.dumps({"Type": "Notification", "Message": notification(record("shop", "a"))})
    twice = json.dumps({"Type": "Notification", "Message": once})
    for content in (once, twice):
        assert [event.key for event in parse(content.encode()).events] == ["a"]


def test_the_message_that_notifications_are_on_says_nothing_and_is_no_mistake() -> None:
    parsed = parse(b'{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026-03-02T08:00:00Z","Bucket":"shop"}')
    assert (parsed.events, parsed.problems) == ([], [])


def test_removals_are_told_apart() -> None:
    names = [
        "ObjectCreated:Copy",
        "ObjectRemoved:DeleteMarkerCreated",
        "s3:ObjectRemoved:Delete",
        "LifecycleExpiration:Delete",
    ]
    parsed = parse(notification(*(record("shop", "a", name) for name in names)).encode())
    assert [event.removed for event in parsed.events] == [False, True, True, True]


def test_documents_lines_and_lists() -> None:
    one, two = (notification(record("shop", key)) for key in "ab")
    for content in (f"{one}\n\n{two}\n", f"[{one}, {two}]", json.dumps([json.loads(one), json.loads(two)], indent=2)):
        assert [event.key for event in parse(content.encode()).events] == ["a", "b"]


def test_what_is_wrong_is_told_and_the_rest_is_taken() -> None:
    good = record("shop", "a")
    wrong = [
        {},
        7,
        {"s3": {"bucket": {"name": "shop"}, "object": {}}},
        {"s3": {"bucket": {"name": 3}, "object": {"key": "a"}}},
        {"s3": {"bucket": {"name": "shop"}, "object": {"key": "%ff"}}},
        {"s3": {"bucket": {"name": "shop"}, "object": {"key": ""}}},
        {"s3": {"bucket": {"name": "shop"}, "object": {"key": "a%00b"}}},
        {"s3": {"bucket": {"name": "shop"}, "object": {"key": "\ud800"}}},
    ]
    parsed = parse(notification(*wrong, good).encode())
    assert [event.key for event in parsed.events] == ["a"]
    assert len(parsed.problems) == len(wrong)


@pytest.mark.parametrize(
    "content",
    [None, b"", b" \n", b"{", b"\xff", b"[" * 100_000, b"3", b'"x"', b"{}", b'{"Message": "x"}', b'{"a": 1}\n{"Rec'],
)
def test_what_is_no_notification_is_said_to_be_none(content: bytes | None) -> None:
    parsed = parse(content)
    assert parsed.events == []
    assert parsed.problems


@given(st.binary(max_size=50) | st.text(max_size=50).map(str.encode))
def test_nothing_that_comes_stops_the_feed(content: bytes) -> None:
    parsed = parse(content)
    assert all(event.key and event.bucket is not None for event in parsed.events)
