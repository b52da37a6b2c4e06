"""Avro files: one row per record, in the columns of the file's schema."""

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
from headwater.sources.avro import AS_NUMBERS, BadAvro, Header, columns_of, plain, read_header, readable
from headwater.sources.objects.content import BadRow, Content, ObjectFailed, buffer
from headwater.sources.objects.formats.base import Decoded, decode_each
from headwater.sources.objects.formats.csv_records import Joined
from headwater.sources.objects.formats.file_schema import Conformer, file_columns

_ROWS = 10_000
_INEXACT = (pa.ArrowException, ValueError, TypeError, OverflowError)

Record = dict[str, Any]


class AvroObjects:
    def __init__(self, schema: pa.Schema) -> None:
        self._conformer = Conformer(schema)

    def decode(self, contents: Sequence[Content]) -> Decoded:
        return decode_each(self.pieces, contents)

    def pieces(self, content: Content) -> Iterator[Decoded]:
        header = header_of(content)
        schema = schema_in(header)
        self._conformer.check(file_columns(schema))
        first = 1
        for records in _records(content, header):
            numbers = np.arange(first, first + len(records))
            first += len(records)
            try:
                yield self._conformer.rows(_batch(records, schema), numbers)
            except _INEXACT:
                yield self._convert_each(records, schema, numbers)

    def _convert_each(self, records: list[Record], schema: pa.Schema, numbers: np.ndarray) -> Decoded:
        bad, good = [], []
        for index, record in enumerate(records):
            try:
                _batch([record], schema)
                good.append(index)
            except _INEXACT as error:
                preview = json.dumps(record, default=str, ensure_ascii=False).encode()
                bad.append(BadRow(0, int(numbers[index]), str(error), preview))
        decoded = self._conformer.rows(_batch([records[index] for index in good], schema), numbers[good])
        return Decoded(decoded.parts, decoded.bad + bad)


def header_of(beginning: Content) -> Header:
    try:
        return read_header(memoryview(beginning))
    except BadAvro as error:
        raise ObjectFailed(f"not Avro: {error}") from None


def schema_in(header: Header) -> pa.Schema:
    """The columns of a file's schema. Raises ObjectFailed."""
    try:
        return columns_of(header.schema, "its schema", AS_NUMBERS)
    except InputError as error:
        raise ObjectFailed(error.message) from None


def _records(content: Content, header: Header) -> Iterator[list[Record]]:
    try:
        inflated = buffer(readable(memoryview(content), header))
        reader: Iterator[Any] = fastavro.reader(io.BufferedReader(Joined([inflated])))
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
