"""A source that notes every acknowledgement, around one that needs none: to test that it comes last (G10)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from headwater.model.marks import Mark
from headwater.model.rows import Rows
from headwater.model.source import Plan, Separates, Source
from headwater.model.window import Window


class AcknowledgingSource:
    """Passes everything on, and appends each acknowledged mark to a file, a line each."""

    def __init__(self, source: Source, record: Path) -> None:
        self._source, self._record = source, record

    @property
    def address(self) -> str:
        return self._source.address

    def plan(self, mark: Mark | None) -> Plan:
        return self._source.plan(mark)

    def plan_without(self, mark: Mark | None, streams: frozenset[str]) -> Plan:
        return self._source.plan_without(mark, streams) if isinstance(self._source, Separates) else self.plan(mark)

    def apart(self, window: Window, streams: frozenset[str]) -> tuple[Window, Window] | None:
        return self._source.apart(window, streams) if isinstance(self._source, Separates) else None

    def read(self, window: Window) -> AbstractContextManager[Sequence[Rows]]:
        return self._source.read(window)

    def position(self, text: str, mark: Mark | None) -> Mark | None:
        return self._source.position(text, mark)

    def acknowledge(self, mark: Mark) -> None:
        with self._record.open("a") as record:
            record.write(f"{mark}\n")

    def close(self) -> None:
        self._source.close()
