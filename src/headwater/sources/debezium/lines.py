"""Lines of files that hold events: the event alone, or beside its key, offset and headers, as Connect's S3 sinks write them."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.sources.debezium.not_rows import is_envelope
from headwater.sources.debezium.transport import OLD_KEY_HEADER

_EVENT = tuple(f'{{"{name}":'.encode() for name in ("before", "after", "source", "op", "schema", "payload", "ts_ms"))
_BETWEEN = re.compile(r"[ \t\r\n]*")
_NULL = "null"
_scan = json.JSONDecoder().raw_decode


@dataclass(frozen=True)
class Line:
    """One message."""

    value: bytes | None
    key: bytes | None = None
    old_key: bytes | None = None


def line_of(line: bytes) -> Line:
    """What stands on a line. One that makes no sense is taken for an event, and becomes a reject."""
    if line.startswith(_EVENT):
        return Line(line)
    try:
        fields = _fields(line.decode())
    except (ValueError, RecursionError):
        return Line(line)
    if "value" not in fields or is_envelope(fields):
        return Line(line)
    return Line(_json(fields["value"]), _json(fields.get("key", _NULL)), _old_key(fields.get("headers", _NULL)))


def _fields(text: str) -> Mapping[str, str]:
    """The fields of the outermost object, each as it is written. Raises ValueError."""
    found: dict[str, str] = {}
    at = _expect(text, _skip(text, 0), "{")
    while True:
        name, at = _scan(text, at)
        at = _expect(text, _skip(text, at), ":")
        end = _scan(text, at)[1]
        if not isinstance(name, str) or name in found:
            raise ValueError("a field without a name, or twice")
        found[name] = text[at:end]
        at = _skip(text, end)
        if text[at : at + 1] == "}" and not text[at + 1 :].strip():
            return found
        at = _expect(text, at, ",")


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise ValueError(f"expected {sign}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _json(written: str) -> bytes | None:
    """A value; where a converter made a text of it, what is in the text."""
    if written == _NULL:
        return None
    if written.startswith('"'):
        inside = str(json.loads(written))
        written = inside if inside.lstrip().startswith("{") else written
    return written.encode()


def _old_key(written: str) -> bytes | None:
    """Headers are objects with a name or a key, and a value: JSON, its text, or its text in base64."""
    headers = json.loads(written)
    for header in headers if isinstance(headers, list) else ():
        if isinstance(header, dict) and OLD_KEY_HEADER in (header.get("key"), header.get("name")):
            return _plain(header.get("value"))
    return None


def _plain(value: object) -> bytes | None:
    if not isinstance(value, str):
        return None if value is None else json.dumps(value).encode()
    if value.lstrip().startswith("{"):
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return value.encode()
