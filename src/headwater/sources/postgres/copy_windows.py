"""Windows that copy tables: all of them in one snapshot of the server, whose place in the log is known.

The snapshot lives as long as a connection of this process. Changes of a table that commit after it come from the log;
while a table is copied in several windows they wait (`TableSeen.landed`). A copy begins with a truncate: it stands for
everything that landed of the table before, and for whatever an unfinished copy left behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.config.postgres_source import PostgresSource
from headwater.model.lsn_mark import LsnMark, TableSeen
from headwater.model.rows import Rows
from headwater.sources.postgres.catalog import CatalogTable
from headwater.sources.postgres.change_schema import stream_schema
from headwater.sources.postgres.copying.rows import CopyOrder, copied_rows, cut_pages, why_not_copied
from headwater.sources.postgres.copying.snapshot import CopySnapshot
from headwater.sources.postgres.evolving import described, homes
from headwater.sources.postgres.kinds import Kinds
from headwater.sources.postgres.tables import TablesNow


@dataclass(frozen=True)
class _Copied:
    """What is copied in the snapshot: tables as they were when it was taken."""

    snapshot: CopySnapshot
    tables: Mapping[str, CatalogTable]
    kinds: Mapping[str, tuple[str, ...]]


class CopyWindows:
    """Copies the tables of one pipeline."""

    def __init__(self, settings: PostgresSource, kinds: Kinds, cores: int) -> None:
        self._settings, self._kinds, self._cores = settings, kinds, cores
        self._copied: _Copied | None = None

    def close(self) -> None:
        if self._copied is not None:
            self._copied.snapshot.close()
            self._copied = None

    def _is_open(self, lsn: int) -> bool:
        """Whether rows can still be read in the snapshot of that place."""
        copied = self._copied
        return copied is not None and copied.snapshot.lsn == lsn and copied.snapshot.alive()

    def wanted(self, mark: LsnMark, now: TablesNow) -> list[str]:
        """The tables that are new, have to be copied again, or whose copy has not ended."""
        return [
            stream
            for stream in now.tables
            if stream not in mark.tables or mark.tables[stream].stale or mark.tables[stream].copied_to is not None
        ]

    def under_way(self, mark: LsnMark) -> bool:
        """Whether some window of a copy has landed, and its snapshot is there for the next."""
        return any(t.copied_to is not None and self._is_open(t.copied) for t in mark.tables.values())

    def following(self, mark: LsnMark, now: TablesNow, streams: Sequence[str]) -> LsnMark:
        """The mark behind the next window, which copies as much of these tables as settings allow."""
        if not self.under_way(mark):
            mark = self._begin(mark, now, streams)
        assert self._copied is not None  # noqa: S101 - it has begun
        tables, budget = dict(mark.tables), self._settings.copy_bytes
        for stream, table in self._copied.tables.items():
            seen = tables[stream]
            if seen.copied_to is None or budget <= 0:
                continue
            upto, cost = cut_pages(table.leaves, seen.copied_to, budget)
            budget -= cost
            # What the log brought for others in the meantime is still to come for this table.
            landed = seen.copied if upto is None and mark.lsn > seen.copied else None
            tables[stream] = replace(seen, copied_to=upto, landed=landed)
        return replace(mark, turn=mark.turn + 1, tables=tables, labels=())

    def _begin(self, mark: LsnMark, now: TablesNow, streams: Sequence[str]) -> LsnMark:
        """Take a snapshot, and all of these tables into it."""
        self.close()
        snapshot = CopySnapshot(self._settings.url)
        wanted = {stream: now.tables[stream] for stream in streams if stream in now.tables}
        as_text = self._settings.as_text
        kinds = {stream: self._kinds.of(table.layout, as_text.get(stream, ())) for stream, table in wanted.items()}
        self._copied = _Copied(snapshot, wanted, kinds)
        tables = {stream: seen for stream, seen in mark.tables.items() if stream in now.tables}
        for stream, table in wanted.items():
            seen = described(tables.get(stream), table, kinds[stream], now.identities[stream], snapshot.lsn)
            tables[stream] = replace(seen, copied_to=0)
        return replace(mark, tables=tables)

    def rows(self, start: LsnMark | None, end: LsnMark) -> Sequence[Rows]:
        """Of the pages between the two marks."""
        return [copied_rows(self._settings.url, order) for order in self._orders(start, end)]

    def why_not_again(self, start: LsnMark | None, end: LsnMark) -> str:
        """Why the pages between the two marks cannot be read any more; empty: they can."""
        orders = self._orders(start, end) if self._copied and self._copied.snapshot.alive() else []
        if not orders:
            return "the snapshot that tables were copied in ended with its process; they are copied in another one"
        why = next(filter(None, (why_not_copied(self._settings.url, order) for order in orders)), "")
        if why:
            self.close()
        return why

    def _orders(self, start: LsnMark | None, end: LsnMark) -> list[CopyOrder]:
        copied = self._copied
        assert copied is not None  # noqa: S101 - a copy was planned here
        made = []
        for stream, seen in sorted(end.tables.items()):
            first = self._first_page(start.tables.get(stream) if start else None, seen)
            if seen.copied == copied.snapshot.lsn and first is not None and first != seen.copied_to:
                made.append(self._order(stream, seen, first, end.place(seen.copied)))
        return made

    def _first_page(self, before: TableSeen | None, seen: TableSeen) -> int | None:
        """None: all of it was copied before the window."""
        return before.copied_to if before is not None and before.copied == seen.copied else 0

    def _order(self, stream: str, seen: TableSeen, first: int, place: int) -> CopyOrder:
        copied = self._copied
        assert copied is not None  # noqa: S101 - as above
        table, kinds = copied.tables[stream], copied.kinds[stream]
        return CopyOrder(
            stream=stream,
            table=table,
            kinds=kinds,
            homes=homes(seen.columns, table.layout, kinds),
            schema=stream_schema(seen),
            where=self._settings.where.get(stream, ""),
            snapshot=copied.snapshot.name,
            place=place,
            moment=copied.snapshot.moment,
            first=first,
            end=seen.copied_to,
            replaces=first == 0,
            splits=self._settings.splits or self._cores * 2,
        )
