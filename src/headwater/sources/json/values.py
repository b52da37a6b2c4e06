"""JSON messages as columns: many at once where all are plain, one by one where something is wrong.

The bad messages of a list are found by halving it, so that one of them costs a few more passes over the list, not
one Python call per message. Where most need the closer look, as with objects that are kept as text, it is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import pyarrow as pa

from headwater.sources.json.fast import FastJson
from headwater.sources.json.strict import Misfit, StrictJson

_FEW = 16
_MOSTLY = 4  # every fourth


@dataclass
class Parsed:
    """The rows of a list of messages, and the messages that have none."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)  # index in the list, reason


class CloserLook(Protocol):
    """One message at a time; what it takes, the parser of many must take as the same."""

    def row(self, value: bytes) -> tuple[Any, ...]: ...
    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch: ...


class JsonValues:
    """Parses for one schema, from one thread."""

    def __init__(self, schema: pa.Schema, closer: CloserLook | None = None) -> None:
        self.schema = schema
        self._fast, self._strict = FastJson(schema), closer or StrictJson(schema)
        self._use_fast = self._fast.usable

    @property
    def slow(self) -> bool:
        """Whether most messages needed the closer look."""
        return not self._use_fast

    def parse(self, values: Sequence[bytes | None]) -> Parsed:
        """A row for every message that has one, in order; a message without a value is one without fields."""
        if None in values:
            return self._parsed([b"{}" if value is None else value for value in values])
        return self._parsed(cast("Sequence[bytes]", values))

    def _parsed(self, values: Sequence[bytes]) -> Parsed:
        parsed = Parsed()
        slow = 0
        for begin, end in self._parts(values, 0, len(values), parsed):
            slow += end - begin
            self._one_by_one(values, begin, end, parsed)
        self._use_fast = self._use_fast and slow * _MOSTLY <= len(values) + _FEW
        return parsed

    def _parts(self, values: Sequence[bytes], begin: int, end: int, parsed: Parsed) -> Iterator[tuple[int, int]]:
        """Parse what can be parsed at once; give the small parts that need a closer look, in order."""
        if begin == end:
            return
        some = values if end - begin == len(values) else values[begin:end]
        batch = self._fast.parse(some) if self._use_fast else None
        if batch is not None:
            parsed.batches.append(batch)
        elif end - begin <= _FEW or not self._use_fast:
            yield begin, end
        else:
            middle = (begin + end) // 2
            yield from self._parts(values, begin, middle, parsed)
            yield from self._parts(values, middle, end, parsed)

    def _one_by_one(self, values: Sequence[bytes], begin: int, end: int, parsed: Parsed) -> None:
        rows = []
        for index in range(begin, end):
            try:
                rows.append(self._strict.row(values[index]))
            except Misfit as misfit:
                parsed.rejected.append((index, str(misfit)))
        if rows:
            parsed.batches.append(self._strict.batch(rows))
