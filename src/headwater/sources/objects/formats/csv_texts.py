"""Records of CSV as columns of texts, by Arrow's parser, with their numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from headwater.config.objects_source import CsvSettings
from headwater.sources.json.fast import is_utf8
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed

_BLOCKS = (8 << 20, 64 << 20, 512 << 20)  # bytes that are parsed at once: the next where a record is longer


class TextRows:
    """The rows of one object in these columns; the others are parsed and left out."""

    def __init__(self, content: Content, names: Sequence[str], wanted: Sequence[str], settings: CsvSettings) -> None:
        self._content, self._names, self._settings = content, names, settings
        self._included = list(wanted or names[:1])
        self._next = 2 if settings.header else 1
        self.uneven: dict[int, int] = {}  # records with too few or too many values: number → how many

    def batches(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Binary values by column, and the records' numbers. Raises ObjectFailed."""
        readable = is_utf8(self._content)
        content = self._content if readable else self._content[:].decode("latin-1").encode()
        for batch in self._parsed(content):
            if batch.num_rows:
                yield batch if readable else _restored(batch), self._numbers(batch.num_rows)

    def _parsed(self, content: Content) -> Iterator[pa.RecordBatch]:
        given = 0
        for block in _BLOCKS:
            try:
                seen = 0
                for batch in pv.open_csv(self._file(content), *self._options(min(len(content) + 2, block))):
                    fresh = batch.slice(
                        max(given - seen, 0)
                    )  # what a smaller block has not given before it was too small
                    seen += batch.num_rows
                    given += fresh.num_rows
                    yield fresh
                return
            except pa.ArrowInvalid as error:
                if "straddl" not in str(error):
                    raise ObjectFailed(f"no CSV: {error}") from None
        raise ObjectFailed(f"a row is longer than {_BLOCKS[-1]:,} bytes")

    def _numbers(self, count: int) -> np.ndarray:
        # Records are parsed before they are given here, so all uneven ones up to the last of these are known.
        numbers = np.arange(self._next, self._next + count + len(self.uneven))
        numbers = numbers[~np.isin(numbers, list(self.uneven))][:count]
        self._next = int(numbers[-1]) + 1 if count else self._next
        return numbers

    def _file(self, content: Content) -> pa.NativeFile:
        # A header without its newline would be an error.
        if isinstance(content, bytes):
            return pa.BufferReader(content if content[-1:] == b"\n" else content + b"\n")
        return pa.PythonFile(Joined([content, b"\n"]), mode="r")

    def _options(self, block: int) -> tuple[pv.ReadOptions, pv.ParseOptions, pv.ConvertOptions]:
        settings = self._settings
        return (
            pv.ReadOptions(
                use_threads=False,  # with threads nobody knows a row's number
                block_size=block,
                column_names=None if settings.header else list(self._names),
            ),
            pv.ParseOptions(
                delimiter=settings.delimiter,
                quote_char=settings.quote,
                escape_char=settings.escape or False,
                newlines_in_values=True,
                invalid_row_handler=self._uneven,
            ),
            pv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.binary()),
                include_columns=self._included,
                null_values=settings.null,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _uneven(self, row: pv.InvalidRow) -> str:
        self.uneven[row.number] = row.actual_columns
        return "skip"


class Joined(io.RawIOBase):
    """Contents one after the other, as a file."""

    def __init__(self, contents: Sequence[Content | memoryview]) -> None:
        self._views = [memoryview(content) for content in contents]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        while self._views and not len(self._views[0]):
            self._views.pop(0)
        if not self._views:
            return 0
        part = self._views[0][: len(room)]
        room[: len(part)] = part
        self._views[0] = self._views[0][len(part) :]
        return len(part)


def _restored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The bytes that were no UTF-8, as they were."""
    columns = [
        pa.array(
            [None if value is None else value.decode().encode("latin-1") for value in column.to_pylist()], pa.binary()
        )
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
