"""Values of messages and lines as columns, with their rejects (G8); and the values that stay as they are: text, binary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

TEXT = pa.schema([pa.field("value", pa.string())])
BINARY = pa.schema([pa.field("value", pa.binary())])


class Misfit(Exception):
    """Why a value does not become a row, or does not fit its column."""


def utf8(value: bytes) -> str:
    """The text. Raises Misfit."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Misfit(f"not UTF-8 at byte {error.start:,}") from None


@dataclass
class ParsedValues:
    """The rows of some values, in order, and the values that have none."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)  # index of a value, reason


class ValueParser(Protocol):
    """How the values of a format become columns. One instance is used by one thread."""

    def parse(self, values: Sequence[bytes | None]) -> ParsedValues: ...


class BinaryValues:
    """Every value as it is."""

    def parse(self, values: Sequence[bytes | None]) -> ParsedValues:
        return ParsedValues([pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=BINARY)])


class TextValues:
    """UTF-8; anything else is a reject."""

    def __init__(self, schema: pa.Schema = TEXT) -> None:
        self._schema = schema

    def parse(self, values: Sequence[bytes | None]) -> ParsedValues:
        try:
            return ParsedValues([self._rows(pa.array(values, pa.binary()).cast(pa.string()))])
        except pa.ArrowInvalid:
            return self._parse_each(values)

    def _parse_each(self, values: Sequence[bytes | None]) -> ParsedValues:
        parsed, texts = ParsedValues(), []
        for index, value in enumerate(values):
            try:
                texts.append(None if value is None else utf8(value))
            except Misfit as misfit:
                parsed.rejected.append((index, str(misfit)))
        parsed.batches.append(self._rows(pa.array(texts, pa.string())))
        return parsed

    def _rows(self, texts: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([texts], schema=self._schema)
