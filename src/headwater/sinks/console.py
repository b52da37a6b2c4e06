"""The console sink: prints the first rows of a window.

It does not know what it printed before: after a crash it may print a window twice (at least once), and never misses
one. It stores nothing.
"""

from __future__ import annotations

import json
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TextIO

import pyarrow as pa
from rich.cells import cell_len, set_cell_size

from headwater.config.sinks.console import ConsoleSinkSettings
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.text_values import Plain, plain_column

_MAX_CELL_WIDTH = 40
_MAX_JSON_TEXT_LENGTH = 1000
# Control, format (text direction), line and paragraph separators, lone surrogates: a row must not be able to
# move the cursor, hide text or look like a line of its own.
_UNPRINTABLE = {"Cc", "Cf", "Zl", "Zp", "Cs"}


class ConsoleSink:
    """Prints up to `limit` rows of each stream and window, and counts all of them."""

    def __init__(self, settings: ConsoleSinkSettings, sink_id: str, out: TextIO) -> None:
        self._settings, self._id, self._out = settings, sink_id, out

    @property
    def id(self) -> str:
        return self._id

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:  # noqa: ARG002 - the protocol's form
        return None  # the console does not know what it printed

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        if rows.splits is not None:
            first, count = _take_first(chain.from_iterable(rows.read_splits()), self._settings.limit, attempt.progress)
        else:
            first, count = _take_first_by_spark(rows, self._settings.limit, attempt)
        title = f"{attempt.pipeline} · {rows.stream} · {count:,} rows, {attempt.window}"
        text = render(title, first, count, self._settings)
        with attempt.publishing():
            self._out.write(text)  # one write: pipelines share the terminal
            self._out.flush()
        return Landing(self._id, rows.stream, attempt.window.id, count, time.monotonic() - began)

    def close(self) -> None:
        """Nothing to close."""


def render(title: str, first: Sequence[pa.RecordBatch], count: int, settings: ConsoleSinkSettings) -> str:
    """The text for one stream of one window."""
    names = first[0].schema.names if first else []
    columns: list[list[Plain]] = [[] for _ in names]
    for batch in first:
        for index, name in enumerate(names):
            columns[index].extend(plain_column(batch.column(index), name))
    printed = len(columns[0]) if columns else 0
    summary = [f"… and {count - printed:,} more"] if count > printed else []
    if settings.format == "json":
        objects = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        lines = [json.dumps(_printable_json(row), ensure_ascii=False) for row in objects]
    else:
        lines = [printable(title), *_table(names, columns)]
    return "".join(f"{line}\n" for line in [*lines, *summary])


def printable(text: str) -> str:
    """The text with control characters escaped, which a terminal would obey instead of show."""
    if text.isprintable():
        return text
    return "".join(_escape(c) if unicodedata.category(c) in _UNPRINTABLE else c for c in text)


def cell(value: Plain) -> str:
    """One value on one line, at most forty cells wide."""
    match value:
        case None:
            text = "NULL"
        case bool():
            text = "true" if value else "false"
        case str():
            text = f'"{value}"' if value == "NULL" else value
        case list() | dict():
            text = json.dumps(value, ensure_ascii=False)
        case _:
            text = str(value)
    # Cut first, so that a huge text is not escaped as a whole; escapes only make it longer.
    printed = printable(text[: _MAX_CELL_WIDTH + 1])
    return printed if cell_len(printed) <= _MAX_CELL_WIDTH else set_cell_size(printed, _MAX_CELL_WIDTH - 1) + "…"


def _table(names: Sequence[str], columns: Sequence[Sequence[Plain]]) -> Iterator[str]:
    if not names:
        return
    heads = [cell(name) for name in names]
    cells = [[cell(value) for value in column] for column in columns]
    widths = [max(cell_len(text) for text in (head, *column)) for head, column in zip(heads, cells, strict=True)]
    numbers = [all(value is None or _is_number(value) for value in column) for column in columns]
    yield _line(heads, widths, [False] * len(heads))
    yield "  ".join("─" * width for width in widths)
    for row in zip(*cells, strict=True):
        yield _line(row, widths, numbers)


def _line(cells: Sequence[str], widths: Sequence[int], align_right: Sequence[bool]) -> str:
    padded = (
        " " * (width - cell_len(text)) + text if is_right else text + " " * (width - cell_len(text))
        for text, width, is_right in zip(cells, widths, align_right, strict=True)
    )
    return "  ".join(padded).rstrip()


def _is_number(value: Plain) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _printable_json(value: Plain) -> Plain:
    match value:
        case str():
            text = value if len(value) <= _MAX_JSON_TEXT_LENGTH else value[: _MAX_JSON_TEXT_LENGTH - 1] + "…"
            return printable(text)
        case float() if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            return str(value)  # JSON has no such numbers; this is for display only
        case list():
            return [_printable_json(item) for item in value]
        case dict():
            return {printable(name): _printable_json(item) for name, item in value.items()}
        case _:
            return value


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _take_first(
    batches: Iterable[pa.RecordBatch], limit: int, progress: Callable[[int], None]
) -> tuple[list[pa.RecordBatch], int]:
    """The first rows, in batches, and the number of all."""
    first: list[pa.RecordBatch] = []
    printed = count = 0
    for batch in batches:
        count += batch.num_rows
        if not first or printed < limit:
            first.append(batch.slice(0, limit - printed))
            printed += first[-1].num_rows
        progress(batch.num_rows)
    return first, count


def _take_first_by_spark(rows: Rows, limit: int, attempt: Attempt) -> tuple[list[pa.RecordBatch], int]:
    """One job: each partition counts its rows and returns its first ones."""

    def sample(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sink = pa.BufferOutputStream()
        first, count = _take_first(batches, limit, lambda _: None)
        if first:
            with pa.ipc.new_stream(sink, first[0].schema) as writer:
                for batch in first:
                    writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [count], "first": [sink.getvalue().to_pybytes()]})

    samples = rows.dataframe(attempt.spark()).mapInArrow(sample, "rows long, first binary").collect()
    batches = (batch for row in samples if row["first"] for batch in pa.ipc.open_stream(bytes(row["first"])))
    first, _ = _take_first(batches, limit, lambda _: None)
    count = sum(row["rows"] for row in samples)
    attempt.progress(count)
    return first, count
