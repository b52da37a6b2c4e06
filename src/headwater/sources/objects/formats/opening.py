"""The decoder of a format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.formats.decoded import Decoded, Decoder, DecodesLines

# Where no column was found yet rows still count: a batch without columns has no length.
_NO_COLUMN = pa.schema([pa.field("", pa.string())])


def open_decoder(reading: Reading) -> Decoder:  # noqa: PLR0911 - one case per format is the clearest form
    """For one task; what a format needs is imported only for it."""
    schema = schema_for_decoding(reading)
    match reading.format:
        case "json":
            from headwater.sources.objects.formats.json import JsonObjects  # noqa: PLC0415

            return JsonObjects(schema, reading.json_as)
        case "csv":
            from headwater.sources.objects.formats.csv import CsvObjects  # noqa: PLC0415

            return CsvObjects(schema, reading.csv, declared=reading.declared)
        case "text":
            from headwater.sources.objects.formats.text import TextObjects  # noqa: PLC0415

            return TextObjects(schema)
        case "parquet":
            from headwater.sources.objects.formats.parquet import ParquetObjects  # noqa: PLC0415

            return ParquetObjects(schema)
        case "avro":
            from headwater.sources.objects.formats.avro import AvroObjects  # noqa: PLC0415

            return AvroObjects(schema)
        case "debezium":
            from headwater.sources.debezium.objects import EventObjects  # noqa: PLC0415

            assert reading.events is not None  # noqa: S101 - made with the format
            return EventObjects(reading.events, reading.json_as)
        case _:
            from headwater.sources.objects.formats.binary import BinaryObjects  # noqa: PLC0415

            return BinaryObjects(schema)


def schema_for_decoding(reading: Reading) -> pa.Schema:
    return reading.content if len(reading.content) else _NO_COLUMN


def open_lines(reading: Reading) -> Callable[[bytes], Decoded]:
    """The same for lines from the midst of an object, in a format that has lines."""
    decoder = open_decoder(replace(reading, json_as="lines"))
    assert isinstance(decoder, DecodesLines)  # noqa: S101 - only such objects are cut
    return decoder.lines
