"""Debezium's events in objects: one table per stream."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError
from headwater.model.position.stream_state import StreamState, positions
from headwater.sources.debezium.decoder import EventDecoder, EventFormat
from headwater.sources.debezium.envelope import OLD_KEY_HEADER, Messages, is_envelope
from headwater.sources.debezium.inference import ColumnInference
from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows, chunks, decode_chunks, decode_one, strip_bom
from headwater.sources.objects.formats.json import elements, has_lines, is_lines, scan_value, skip_space, split_objects


class EventObjects:
    """Decodes objects of one stream; `as_`: auto, lines or document."""

    def __init__(self, format_: EventFormat, as_: str) -> None:
        self._rows, self._as = EventDecoder(format_), as_

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return self._decoded([strip_bom(content[:]) for content in contents], self._as)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if has_lines(content, self._as):
            yield from decode_chunks(content, self.lines)
        else:
            yield decode_one(self, content)

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the middle of an object."""
        return self._decoded([chunk], "lines")

    def element(self, value: bytes) -> Decoded:
        """One line."""
        return self._decode_lines([value], [(0, 1)], Decoded())

    def _decoded(self, texts: Sequence[bytes], as_: str) -> Decoded:
        decoded = Decoded()
        return self._decode_lines(*split_objects(texts, range(len(texts)), as_, decoded), decoded)

    def _decode_lines(self, lines: list[bytes], locations: list[tuple[int, int]], decoded: Decoded) -> Decoded:
        if not lines:
            return decoded
        events = self._rows.decode(messages_of([line_of(line) for line in lines]))
        decoded.bad += [BadRow(*locations[index], reason, lines[index]) for index, reason in events.rejected]
        if events.rows.num_rows:
            owners, numbers = np.array(locations, np.int64)[events.message_indices].T
            decoded.parts.append(DecodedRows.of_rows(events.rows, owners, numbers))
        return decoded


def messages_of(lines: Sequence[Line]) -> Messages:
    return Messages([line.value for line in lines], lambda n: lines[n].key, lambda n: lines[n].old_key)


def infer_state(
    known: StreamState, contents: Iterable[Content], settings: ObjectsSourceSettings, where: str
) -> StreamState:
    """The known columns and key, and the new ones of the objects. Unreadable objects add none; they fail later."""
    inference = ColumnInference(where, settings.debezium, settings.schema)
    for content in contents if not inference.complete else ():
        for chunk in chunks(content) if is_lines(content) else [content[:]]:
            try:
                messages = messages_of([line_of(line) for _, line in elements(strip_bom(chunk), settings.json_as)])
            except ObjectFailed:
                continue
            inference.see(messages.values, [messages.key(n) for n in range(len(messages.values))])
    tables = inference.seen()
    if len(tables) > 1:
        raise InputError(
            f"{where}: events of several tables: {', '.join(sorted(tables))}",
            hint="a stream is one table: use one pipeline per table, each with its url or pattern",
        )
    columns = inference.columns(known.columns, set(settings.metadata_columns.values()))
    return StreamState(columns=columns, key_positions=positions(inference.key(known.key, columns)))


_EVENT = tuple(f'{{"{name}":'.encode() for name in ("before", "after", "source", "op", "schema", "payload", "ts_ms"))
_NULL = "null"


@dataclass(frozen=True)
class Line:
    """One message."""

    value: bytes | None
    key: bytes | None = None
    old_key: bytes | None = None


def line_of(line: bytes) -> Line:
    """The message of a line. An unreadable line is treated as an event, and becomes a reject."""
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
    """The text of each field of the outermost object. Raises ValueError."""
    fields: dict[str, str] = {}
    at = _expect(text, skip_space(text, 0), "{")
    while True:
        name, at = scan_value(text, at)
        at = _expect(text, skip_space(text, at), ":")
        end = scan_value(text, at)[1]
        if not isinstance(name, str) or name in fields:
            raise ValueError("a field has no name, or is there twice")
        fields[name] = text[at:end]
        at = skip_space(text, end)
        if text[at : at + 1] == "}" and not text[at + 1 :].strip():
            return fields
        at = _expect(text, at, ",")


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise ValueError(f"expected {sign}")
    return skip_space(text, at + 1)


def _json(written: str) -> bytes | None:
    """A value; unwrapped where a converter made a JSON string of it."""
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
