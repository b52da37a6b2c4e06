"""The rows of heaps in their order, over a connection that may break: it is opened again, behind the last row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from headwater.model.errors import RunError
from headwater.model.secret import Secret
from headwater.sources.postgres.copying.pages import HeapRange
from headwater.sources.postgres.copying.row_places import Numbers, in_order, item_of, places_of
from headwater.sources.postgres.copying.session import CopySession, broken, passing
from headwater.sources.postgres.copying.statement import CopiedColumn, Item, heap_name
from headwater.sources.sql.copy_stream import Chunk, CopyRefused

_PAUSES_SECONDS = (0.1, 0.5, 1.0, 2.0, 4.0)  # before each other try; a row that came makes them begin anew


@dataclass(frozen=True)
class Reading:
    """What is read of every heap, and where."""

    stream: str
    url: Secret
    snapshot: str
    columns: tuple[CopiedColumn, ...]
    where: str


class HeapReader:
    """One connection at a time. Not a row is lost where it breaks, nor given twice."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._session: CopySession | None = None

    def chunks(self, heap: HeapRange) -> Iterator[tuple[Chunk, Numbers]]:
        """Some rows, and the place of each. Raises SnapshotGone when the snapshot, or the heap that it saw, is gone."""
        behind: Item | None = None
        tries = 0
        while True:
            try:
                for chunk in self._opened(heap).copy(heap, self._reading.columns, self._reading.where, behind):
                    places = places_of(chunk)
                    if not in_order(places, behind):
                        raise RunError(f"{self._reading.stream}: rows of {heap_name(heap)} came out of their order")
                    behind, tries = item_of(int(places[-1])), 0
                    yield chunk, places
                return
            except (psycopg.Error, CopyRefused, OSError) as error:
                self.close()
                if tries == len(_PAUSES_SECONDS) or not passing(error):
                    raise broken(self._reading.stream, self._reading.url, error) from None
            time.sleep(_PAUSES_SECONDS[tries])
            tries += 1

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _opened(self, heap: HeapRange) -> CopySession:
        if self._session is None:
            self._session = CopySession(self._reading.url, self._reading.snapshot, self._reading.stream)
        self._session.check(heap, self._reading.columns)
        return self._session
