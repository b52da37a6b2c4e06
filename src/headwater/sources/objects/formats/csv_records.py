"""Records of CSV one at a time, by Python's reader: the header, the bytes of bad records, and quotes that do not match.

Arrow's parser agrees with it on what a record is (tests compare them), and is many times as fast. But it does not say
where a record stands, takes what is behind a closing quote, as in `"a"b`, for a part of the value, and does not mind a
quote that is never closed: all that follows would be one value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator

import numpy as np

from headwater.config.objects_source import CsvSettings
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.csv_texts import Joined

# Any byte is a character of it, so that bytes come back as they were.
_BYTES = "latin-1"
_ENDS = b"\r\n"
_STEP = 8 << 20  # bytes that are looked at at once
_MARK = b"\xef\xbb\xbf"

csv.field_size_limit(2**31 - 1)  # the default refuses values of 128 KB


def first_record(content: Content, settings: CsvSettings) -> list[bytes]:
    """Its values: the names of columns, or a row; none: there is no record."""
    values = next(_records(content, settings), ("", []))[1]
    return [value.encode(_BYTES) for value in values]


def raw(content: Content, settings: CsvSettings, numbers: Collection[int]) -> dict[int, bytes]:
    """The bytes of these records, by number; the first is 1."""
    last, found = max(numbers, default=0), {}
    for number, (text, _) in enumerate(_records(content, settings), start=1):
        if number in numbers:
            found[number] = text.encode(_BYTES).rstrip(_ENDS)
        if number >= last:
            break
    return found


def check_quotes(content: Content, settings: CsvSettings) -> None:
    """Raise ObjectFailed where a value goes on behind its closing quote, or has none."""
    if not _suspicious(content, settings):
        return
    number = 0
    try:
        for _ in _records(content, settings, strict=True):
            number += 1
    except csv.Error as error:
        closed = (
            "a quote is never closed" if "end of data" in str(error) else "a value goes on behind its closing quote"
        )
        raise ObjectFailed(f"row {number + 1:,}: {closed}") from None


def _suspicious(content: Content, settings: CsvSettings) -> bool:
    """Whether quotes are not simply opening, closing, opening …, where a doubled one closes and opens.

    An opening quote has nothing of its value before it, a closing one nothing of it behind.
    """
    if settings.escape and content.find(settings.escape.encode()) >= 0:
        return True
    letters, count = np.frombuffer(content, np.uint8), 0
    edges = np.frombuffer((settings.delimiter + settings.quote).encode() + _ENDS, np.uint8)
    for begin in range(0, len(letters), _STEP):
        quotes = np.flatnonzero(letters[begin : begin + _STEP] == ord(settings.quote)) + begin
        opening, closing = (quotes[count % 2 :: 2], quotes[1 - count % 2 :: 2])
        opens = np.isin(letters[opening - 1], edges) | (opening == _begin(content))
        closes = np.isin(letters[np.minimum(closing + 1, len(letters) - 1)], edges)  # the last letter is a quote itself
        if not (opens.all() and closes.all()):
            return True
        count += len(quotes)
    return count % 2 == 1


def _records(content: Content, settings: CsvSettings, *, strict: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Text and values of each; blank lines are none."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.TextIOWrapper(
            io.BufferedReader(Joined([memoryview(content)[_begin(content) :]])), _BYTES, newline=""
        ):
            taken.append(line)
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
            yield "".join(taken), values
        taken.clear()


def _begin(content: Content) -> int:
    """Where it begins behind the mark of its encoding."""
    return len(_MARK) if content[: len(_MARK)] == _MARK else 0
