"""Kafka messages → lines, as the S3 sinks of Kafka Connect write them. Pure.

`value` alone is what Confluent's sink writes, an object with the message's parts around it what Aiven's does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import ValueNotKept
from headwater.sinks.plain_values import flat_column
from headwater.sources.json.fast import FastJson

Fields = Literal["all", "value"]

_NO_COLUMNS = pa.schema([])
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_REMEMBERED = 10_000
_BREAKS_A_LINE = "write fields: all, which keeps any text"


class MessageLines:
    """Makes the lines of one landing; `lines` has one per row, None for a row that gives none."""

    def __init__(self, fields: Fields, names: Sequence[str]) -> None:
        self._fields, self._names = fields, set(names)
        self._known_headers: dict[tuple[tuple[str, bytes | None], ...], bytes] = {}

    def of(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """Raises ValueNotKept, and has remembered nothing of the batch, where one of its rows has no line."""
        values = batch.column("value").cast(pa.binary())
        if self._fields == "value":
            return [None if value is None else _alone(value) for value in values.to_pylist()]
        parts = [_member("value", _documents(values, "the value"))]
        if "kafka_key" in self._names:
            parts.insert(0, _member("key", _documents(batch.column("kafka_key").cast(pa.binary()), "the key")))
        parts += [_member(name, _numbers(batch.column(f"kafka_{name}"))) for name in ("offset", "partition")]
        if "kafka_timestamp" in self._names:
            parts.append(_member("timestamp", _moments(batch.column("kafka_timestamp"))))
        if "kafka_headers" in self._names:
            parts.append(_member("headers", self._headers(batch.column("kafka_headers"))))
        return [b"{" + b",".join(members) + b"}" for members in zip(*parts, strict=True)]

    def _headers(self, column: pa.Array) -> list[bytes]:
        made, edges = [], column.offsets.to_pylist()
        names, values = (column.values.field(index).to_pylist() for index in (0, 1))
        everyone = list(zip(names, values, strict=True))
        for begin, end in pairwise(edges):
            # Debezium writes the same few headers into every message.
            known = tuple(everyone[begin:end])
            text = self._known_headers.get(known)
            if text is None:
                text = json.dumps(
                    [_header(*each) for each in known], ensure_ascii=False, separators=(",", ":")
                ).encode()
                if len(self._known_headers) < _REMEMBERED:
                    self._known_headers[known] = text
            made.append(text)
        return made


def _member(name: str, values: Sequence[bytes]) -> list[bytes]:
    before = f'"{name}":'.encode()
    return [before + value for value in values]


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    """As text; bytes that are none under a name of their own, so that nobody takes one for the other."""
    if value is None:
        return {"key": name, "value": None}
    try:
        return {"key": name, "value": value.decode()}
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415 - hardly ever

        return {"key": name, "base64": base64.b64encode(value).decode()}


def _documents(column: pa.Array, what: str) -> list[bytes]:
    """Each as JSON: what is JSON already as it is, other text as a JSON text."""
    values = column.to_pylist()
    present = [value for value in values if value is not None]
    if _all_objects(present):
        return [b"null" if value is None else value for value in values]
    return [b"null" if value is None else _document(value, what) for value in values]


def _all_objects(values: Sequence[bytes]) -> bool:
    """Whether every one is a JSON object on one line: looked at all at once."""
    if any(b"\n" in value or b"\r" in value for value in values):
        return False
    return not values or FastJson(_NO_COLUMNS).parse(values) is not None


def _document(value: bytes, what: str) -> bytes:
    if _is_json(value):
        return value.translate(_BREAKS)  # in JSON a line break stands only where a space may
    try:
        return json.dumps(value.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueNotKept(f"{what} is neither JSON nor text: byte {error.start:,} is not UTF-8") from error


def _alone(value: bytes) -> bytes:
    """A line of its own."""
    if b"\n" not in value and b"\r" not in value and value:
        return value
    if not value:
        raise ValueNotKept("the value is empty, and readers skip empty lines", hint=_BREAKS_A_LINE)
    if _is_json(value):
        return value.translate(_BREAKS)
    raise ValueNotKept("the value is no JSON and goes over several lines", hint=_BREAKS_A_LINE)


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _numbers(column: pa.Array) -> list[bytes]:
    return [str(number).encode() for number in column.to_pylist()]


def _moments(column: pa.Array) -> list[bytes]:
    texts = flat_column(pc.cast(column, pa.timestamp("ms", "UTC")))
    return [b"null" if text is None else f'"{text}"'.encode() for text in texts.to_pylist()]
