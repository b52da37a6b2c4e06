"""Records of CSV: as columns of texts by Arrow's parser, one by one by Python's reader.

Python's reader finds the header, the bytes of bad records, and wrong quotes. Arrow's parser finds the same records
(tests compare them), many times as fast. But it does not return the position of a record, appends text after a
closing quote, as in `"a"b`, to the value, and accepts a quote that is never closed: all that follows would be one
value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from headwater.config.sources.objects import CsvSettings
from headwater.sources.json.decoder import is_utf8
from headwater.sources.objects.content import Content, ObjectFailed
from headwater.sources.objects.formats.base import strip_bom
from headwater.sources.objects.tuning import DEFAULT


class TextRows:
    """The rows of one object in the selected columns."""

    def __init__(
        self,
        content: Content,
        names: Sequence[str],
        selected: Sequence[str],
        settings: CsvSettings,
        block_bytes: Sequence[int] = DEFAULT.csv_block_bytes,
    ) -> None:
        self._block_bytes = block_bytes
        self._content, self._names, self._settings = content, names, settings
        self._included = list(selected or names[:1])
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
        yielded = 0
        for block in self._block_bytes:
            try:
                seen = 0
                for batch in pv.open_csv(self._file(content), *self._options(min(len(content) + 2, block))):
                    # A smaller block yielded the first rows before it was too small for the next one.
                    fresh = batch.slice(max(yielded - seen, 0))
                    seen += batch.num_rows
                    yielded += fresh.num_rows
                    yield fresh
                return
            except pa.ArrowInvalid as error:
                if "straddl" not in str(error):
                    raise ObjectFailed(f"not CSV: {error}") from None
        raise ObjectFailed(f"a row is longer than {self._block_bytes[-1]:,} bytes")

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
                use_threads=False,  # with threads the numbers of rows are unknown
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
    """The original bytes of values that are not UTF-8."""
    columns = [
        pa.array(
            [None if value is None else value.decode().encode("latin-1") for value in column.to_pylist()], pa.binary()
        )
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


@dataclass(frozen=True)
class JoinedCsv:
    """Objects under one header."""

    content: bytes
    owners: np.ndarray  # which objects they are
    ends: np.ndarray  # how many rows there are up to the end of each
    first: int  # the number of an object's first row

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For rows by their numbers in the joined content: the object of each, and its number there."""
        rows = numbers - self.first
        contents = np.searchsorted(self.ends, rows, side="right")
        begins = np.concatenate(([0], self.ends))[contents]
        return self.owners[contents], rows - begins + self.first


def join(contents: Sequence[Content], settings: CsvSettings) -> tuple[list[JoinedCsv], list[int]]:
    """Joined objects, and the numbers of those that stay alone."""
    alike: dict[bytes, list[tuple[int, bytes]]] = {}
    alone = []
    for number, content in enumerate(contents):
        text = _one_record_a_line(content, settings)
        if text is None:
            alone.append(number)
            continue
        first = text[: text.find(b"\n")]
        # Without a header it is the number of columns that must be the same.
        key = first if settings.header else b"%d" % first.count(settings.delimiter.encode())
        alike.setdefault(key, []).append((number, text))
    alone += [group[0][0] for group in alike.values() if len(group) == 1]
    return [_joined(group, settings) for group in alike.values() if len(group) > 1], sorted(alone)


def _one_record_a_line(content: Content, settings: CsvSettings) -> bytes | None:
    """The object with a newline after each record, or None where that is not certain."""
    text = strip_bom(content[:])
    if settings.quote.encode() in text or (settings.escape and settings.escape.encode() in text):
        return None
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    if not text or b"\r" in text or text[:1] == b"\n" or b"\n\n" in text:
        return None
    return text if text[-1:] == b"\n" else text + b"\n"


def _joined(group: list[tuple[int, bytes]], settings: CsvSettings) -> JoinedCsv:
    header = len(group[0][1][: group[0][1].find(b"\n") + 1]) if settings.header else 0
    bodies = [text[header:] for _, text in group]
    counts = np.fromiter((body.count(b"\n") for body in bodies), np.int64, len(bodies))
    owners = np.array([number for number, _ in group])
    content = b"".join([group[0][1][:header], *bodies])
    return JoinedCsv(content, owners, np.cumsum(counts), 2 if settings.header else 1)


# Any byte is a character of it, so that bytes come back as they were.
_BYTES = "latin-1"
_ENDS = b"\r\n"
_BOM = b"\xef\xbb\xbf"

csv.field_size_limit(2**31 - 1)  # the default refuses values of 128 KB


def first_record(content: Content, settings: CsvSettings) -> list[bytes]:
    """The values of the first record: names of columns, or a row; empty: there is no record."""
    values = next(_records(content, settings), ("", []))[1]
    return [value.encode(_BYTES) for value in values]


def raw(content: Content, settings: CsvSettings, numbers: Collection[int]) -> dict[int, bytes]:
    """The bytes of these records, by number; the first is 1."""
    last, records = max(numbers, default=0), {}
    for number, (text, _) in enumerate(_records(content, settings), start=1):
        if number in numbers:
            records[number] = text.encode(_BYTES).rstrip(_ENDS)
        if number >= last:
            break
    return records


def check_quotes(content: Content, settings: CsvSettings, scan_bytes: int = DEFAULT.csv_scan_bytes) -> None:
    """Raise ObjectFailed where a value continues after its closing quote, or has none."""
    if not _suspicious(content, settings, scan_bytes):
        return
    number = 0
    try:
        for _ in _records(content, settings, strict=True):
            number += 1
    except csv.Error as error:
        closed = (
            "a quote is never closed" if "end of data" in str(error) else "a value continues after its closing quote"
        )
        raise ObjectFailed(f"row {number + 1:,}: {closed}") from None


def _suspicious(content: Content, settings: CsvSettings, scan_bytes: int) -> bool:
    """True unless quotes simply alternate: opening, closing, opening …, where a doubled one closes and opens.

    No text of the value is before an opening quote or after a closing one.
    """
    if settings.escape and content.find(settings.escape.encode()) >= 0:
        return True
    letters, count = np.frombuffer(content, np.uint8), 0
    edges = np.frombuffer((settings.delimiter + settings.quote).encode() + _ENDS, np.uint8)
    for begin in range(0, len(letters), scan_bytes):
        quotes = np.flatnonzero(letters[begin : begin + scan_bytes] == ord(settings.quote)) + begin
        opening, closing = (quotes[count % 2 :: 2], quotes[1 - count % 2 :: 2])
        opens = np.isin(letters[opening - 1], edges) | (opening == _begin(content))
        closes = np.isin(letters[np.minimum(closing + 1, len(letters) - 1)], edges)  # the last letter is a quote itself
        if not (opens.all() and closes.all()):
            return True
        count += len(quotes)
    return count % 2 == 1


def _records(content: Content, settings: CsvSettings, *, strict: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Text and values of each record; blank lines are not records."""
    record_lines: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.TextIOWrapper(
            io.BufferedReader(Joined([memoryview(content)[_begin(content) :]])), _BYTES, newline=""
        ):
            record_lines.append(line)
            yield line

    reader = csv.reader(
        lines(),
        delimiter=settings.delimiter,
        quotechar=settings.quote,
        escapechar=settings.escape,
        strict=strict,
    )
    for values in reader:
        if values:
            yield "".join(record_lines), values
        record_lines.clear()


def _begin(content: Content) -> int:
    """The position after a byte order mark."""
    return len(_BOM) if content[: len(_BOM)] == _BOM else 0
