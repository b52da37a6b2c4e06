"""Messages whose value stays one column: as text, or as it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.sources.json.values import Parsed

TEXT = pa.schema([pa.field("value", pa.string())])
BINARY = pa.schema([pa.field("value", pa.binary())])


class BinaryValues:
    """Every value as it is; there is none that does not fit."""

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        return Parsed([pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=BINARY)])


class TextValues:
    """UTF-8, and what is not UTF-8 is a reject."""

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        column = pa.array(values, pa.binary())
        try:
            return Parsed([pa.RecordBatch.from_arrays([column.cast(pa.string())], schema=TEXT)])
        except pa.ArrowInvalid:
            return self._one_by_one(values)

    def _one_by_one(self, values: Sequence[bytes | None]) -> Parsed:
        parsed, texts = Parsed(), []
        for index, value in enumerate(values):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                parsed.rejected.append((index, f"not UTF-8 at byte {error.start:,}"))
        parsed.batches.append(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=TEXT))
        return parsed
