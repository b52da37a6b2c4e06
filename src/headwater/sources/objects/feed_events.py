"""Notifications of object stores: S3's JSON, as it is, in MinIO's frame or in SNS's envelope. Text in, keys out."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_plus

_TEST = "s3:TestEvent"  # what S3 sends when notifications are switched on
_REMOVALS = ("ObjectRemoved:", "LifecycleExpiration:")
_ENVELOPES = 2  # SNS in SNS is the most that anybody sends


@dataclass(frozen=True)
class Event:
    """Something happened to an object; what is there now only a look can tell."""

    bucket: str
    key: str
    removed: bool
    at: float | None  # in seconds since 1970, by the store's clock; None: not said


@dataclass
class Parsed:
    """What one notification says, and why parts of it say nothing."""

    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class _NoEvent(Exception):
    """Why something is no event. Without its content: that belongs to whoever sent it."""


def parse(content: bytes | None) -> Parsed:
    """A notification, or several: one JSON document, or one on each line."""
    parsed = Parsed()
    if not content or not content.strip():
        parsed.problems.append("it is empty")
        return parsed
    try:
        documents = [json.loads(content)]
    except (ValueError, RecursionError):
        documents = list(_lines(content, parsed))
    for document in documents:
        for record in _records(document, parsed, _ENVELOPES):
            try:
                parsed.events.append(_event(record))
            except _NoEvent as reason:
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
                f"line {number} is no JSON ({error if isinstance(error, ValueError) else 'too deep'})"
            )


def _records(document: Any, parsed: Parsed, envelopes: int) -> Iterator[Any]:
    if isinstance(document, list):
        for one in document:
            yield from _records(one, parsed, envelopes)
    elif not isinstance(document, dict):
        parsed.problems.append(f"a JSON {type(document).__name__} is no notification")
    elif isinstance(document.get("Records"), list):
        yield from document["Records"]
    elif isinstance(document.get("Message"), str) and envelopes:
        try:
            yield from _records(json.loads(document["Message"]), parsed, envelopes - 1)
        except (ValueError, RecursionError):
            parsed.problems.append("the Message in an envelope is no JSON")
    elif "EventName" in document and "Key" in document:
        yield document
    elif document.get("Event") != _TEST:
        parsed.problems.append("neither Records nor a Message nor a Key is in it")


def _event(record: Any) -> Event:
    if not isinstance(record, dict):
        raise _NoEvent("a record is no JSON object")
    if "s3" not in record and isinstance(record.get("Key"), str):
        # MinIO's frame without records: the bucket stands before the key, and nothing is escaped.
        bucket, _, key = record["Key"].partition("/")
        return Event(bucket, _checked(key), _removes(record.get("EventName")), None)
    try:
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
    except (KeyError, TypeError):
        raise _NoEvent("a record names no s3.bucket.name and s3.object.key") from None
    if not isinstance(bucket, str) or not isinstance(key, str):
        raise _NoEvent("a bucket's name or a key is no text")
    try:
        key = unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise _NoEvent("a key is escaped, and not as UTF-8") from None
    return Event(bucket, _checked(key), _removes(record.get("eventName")), _moment(record.get("eventTime")))


def _checked(key: str) -> str:
    """No store holds these, and databases refuse them."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise _NoEvent("a key is no text") from None
    if not key or "\0" in key:
        raise _NoEvent("a key is empty, or has a NUL in it")
    return key


def _removes(name: object) -> bool:
    return isinstance(name, str) and name.removeprefix("s3:").startswith(_REMOVALS)


def _moment(text: object) -> float | None:
    try:
        found = dt.datetime.fromisoformat(text) if isinstance(text, str) else None
        return found.timestamp() if found and found.tzinfo else None
    except (ValueError, OverflowError):
        return None
