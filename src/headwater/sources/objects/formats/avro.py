"""Avro files: a row per record, in the columns of the schema that every file carries."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from headwater.model.errors import InputError
from headwater.sources.avro.container import BadAvro, Header, read_header, readable
from headwater.sources.avro.types import AS_NUMBERS, columns_of
from headwater.sources.avro.values import plain
from headwater.sources.objects.contents import Content, kept
from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.conform import Conforming
from headwater.sources.objects.formats.csv_texts import Joined
from headwater.sources.objects.formats.decoded import Decoded, one_by_one
from headwater.sources.objects.own_columns import own_columns

_ROWS = 10_000
_NOT_KEPT = (pa.ArrowException, ValueError, TypeError, OverflowError)

Record = dict[str, Any]


class AvroObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._conforming = Conforming(schema)

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return one_by_one(self.pieces, contents)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        header = header_of(content)
        schema = schema_in(header)
        self._conforming.check(own_columns(schema))
        first = 1
        for records in _records(content, header):
            numbers = np.arange(first, first + len(records))
            first += len(records)
            try:
                yield self._conforming.rows(_batch(records, schema), numbers)
            except _NOT_KEPT:
                yield self._one_by_one(records, schema, numbers)

    def _one_by_one(self, records: list[Record], schema: pa.Schema, numbers: np.ndarray) -> Decoded:
        bad, kept = [], []
        for place, record in enumerate(records):
            try:
                _batch([record], schema)
                kept.append(place)
            except _NOT_KEPT as error:
                shown = json.dumps(record, default=str, ensure_ascii=False).encode()
                bad.append(BadRow(0, int(numbers[place]), str(error), shown))
        made = self._conforming.rows(_batch([records[place] for place in kept], schema), numbers[kept])
        return Decoded(made.parts, made.bad + bad)


def header_of(beginning: Content) -> Header:
    try:
        return read_header(memoryview(beginning))
    except BadAvro as error:
        raise ObjectFailed(f"no Avro: {error}") from None


def schema_in(header: Header) -> pa.Schema:
    """The columns that a file declares, as they are read. Raises ObjectFailed."""
    try:
        return columns_of(header.schema, "its schema", AS_NUMBERS)
    except InputError as error:
        raise ObjectFailed(error.message) from None


def _records(content: Content, header: Header) -> Iterator[list[Record]]:
    try:
        whole = kept(readable(memoryview(content), header))
        reader: Iterator[Any] = fastavro.reader(io.BufferedReader(Joined([whole])))
        while records := list(islice(reader, _ROWS)):
            yield records
    except BadAvro as error:
        raise ObjectFailed(f"bad Avro: {error}") from None
    except Exception as error:  # noqa: BLE001 - the decoder meets arbitrary bytes; whatever it raises, the file is at fault
        raise ObjectFailed(f"bad Avro: {type(error).__name__} {error}".strip()) from None


def _batch(records: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Raises ArrowException where a value is not of its type: a decimal with more digits than it declares."""
    columns = [
        pa.array([plain(record.get(field.name), field.type) for record in records], field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
