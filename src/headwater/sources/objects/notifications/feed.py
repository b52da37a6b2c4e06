"""A feed of notifications from object stores, of any origin, and their parser.

A feed only names keys to check, so events may come twice, in any order, or for objects that were deleted. They are
S3's JSON: plain, in MinIO's frame or in SNS's envelope.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote_plus

from headwater.model.position.marks import Json

_TEST = "s3:TestEvent"  # S3 sends it when notifications are enabled
_REMOVALS = ("ObjectRemoved:", "LifecycleExpiration:")
_MAX_ENVELOPES = 2  # SNS in SNS


@dataclass(frozen=True)
class Event:
    """Something happened to an object; its current state needs a check."""

    bucket: str
    key: str
    removed: bool
    at: float | None  # seconds since 1970 by the store's clock; None: unknown


@dataclass
class Parsed:
    """The events of one notification, and the reasons why parts of it are unreadable."""

    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class _NotAnEvent(Exception):
    """Why a record is not an event. Without its content, which belongs to the sender."""


def parse(content: bytes | None) -> Parsed:
    """One JSON document, or one per line."""
    parsed = Parsed()
    if not content or not content.strip():
        parsed.problems.append("it is empty")
        return parsed
    try:
        documents = [json.loads(content)]
    except (ValueError, RecursionError):
        documents = list(_lines(content, parsed))
    for document in documents:
        for record in _records(document, parsed, _MAX_ENVELOPES):
            try:
                parsed.events.append(_event(record))
            except _NotAnEvent as reason:
                parsed.problems.append(str(reason))
    return parsed


def _lines(content: bytes, parsed: Parsed) -> Iterator[Any]:
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            parsed.problems.append(
                f"line {number} is not JSON ({error if isinstance(error, ValueError) else 'too deep'})"
            )


def _records(document: Any, parsed: Parsed, envelopes: int) -> Iterator[Any]:
    if isinstance(document, list):
        for element in document:
            yield from _records(element, parsed, envelopes)
    elif not isinstance(document, dict):
        parsed.problems.append(f"a JSON {type(document).__name__} is not a notification")
    elif isinstance(document.get("Records"), list):
        yield from document["Records"]
    elif isinstance(document.get("Message"), str) and envelopes:
        try:
            yield from _records(json.loads(document["Message"]), parsed, envelopes - 1)
        except (ValueError, RecursionError):
            parsed.problems.append("the Message in an envelope is not JSON")
    elif "EventName" in document and "Key" in document:
        yield document
    elif document.get("Event") != _TEST:
        parsed.problems.append("it has neither Records nor a Message nor a Key")


def _event(record: Any) -> Event:
    if not isinstance(record, dict):
        raise _NotAnEvent("a record is not a JSON object")
    if "s3" not in record and isinstance(record.get("Key"), str):
        # MinIO's frame without records: the key begins with the bucket, and nothing is escaped.
        bucket, _, key = record["Key"].partition("/")
        return Event(bucket, _check_key(key), _is_removal(record.get("EventName")), None)
    try:
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
    except (KeyError, TypeError):
        raise _NotAnEvent("a record lacks s3.bucket.name or s3.object.key") from None
    if not isinstance(bucket, str) or not isinstance(key, str):
        raise _NotAnEvent("a bucket's name or a key is not a string")
    try:
        key = unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise _NotAnEvent("a key is not escaped UTF-8") from None
    return Event(bucket, _check_key(key), _is_removal(record.get("eventName")), _event_time(record.get("eventTime")))


def _check_key(key: str) -> str:
    """Refuse keys that no store has and databases reject."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise _NotAnEvent("a key is not valid Unicode") from None
    if not key or "\0" in key:
        raise _NotAnEvent("a key is empty or contains NUL")
    return key


def _is_removal(name: object) -> bool:
    return isinstance(name, str) and name.removeprefix("s3:").startswith(_REMOVALS)


def _event_time(text: object) -> float | None:
    try:
        time = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
        return time.timestamp() if time and time.tzinfo else None
    except (ValueError, OverflowError):
        return None


NotificationId = tuple[object, ...]  # partition and offset, or file and version
_MAX_LISTED = 3


@dataclass(frozen=True)
class FeedEvent:
    """An event, and the notification that contained it."""

    event: Event
    notification: NotificationId


@dataclass(frozen=True)
class FeedPage:
    """The notifications after a position, up to a limit."""

    events: Sequence[FeedEvent]
    ids: Sequence[NotificationId]  # of all notifications that were read, with those without events
    count: int  # notifications after the position, with skipped ones
    more: bool  # the feed has more
    warnings: tuple[str, ...]
    position: Callable[[Collection[NotificationId]], Json]  # after all notifications, but before the given ones


class FeedGap(Exception):
    """The feed has lost notifications after the position; the text says why."""


class Feed(Protocol):
    """Raises SourceUnreachable when it does not answer."""

    def end(self) -> Json:
        """The position after all current notifications."""

    def read_after(self, position: Json, skip: Collection[NotificationId]) -> FeedPage:
        """The notifications after the position, without those to skip. Raises FeedGap."""


def unreadable_warning(feed: str, problems: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One warning for notifications without usable events; `problems` are pairs of position and reason."""
    if not problems:
        return ()
    listed = "; ".join(f"{position}: {reason}" for position, reason in problems[:_MAX_LISTED])
    more = "; …" if len(problems) > _MAX_LISTED else ""
    count = f"{len(problems):,} unreadable notification{'s' if len(problems) > 1 else ''}"
    return (f"{feed}: {count}; the next listing finds their objects: {listed}{more}",)
