"""Windows of the WAL: what the slot holds beyond a mark, decoded in one pass and spooled until it has landed.

A peek leaves the slot as it is, and returns the same bytes again. So the window's end is known by reading it, and a
process that comes later reads exactly the same window from its two marks (G5).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import SourceChanged
from headwater.model.position.lsn import LastCommit, lsn_text
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState, positions
from headwater.model.rows import Changes, Rows
from headwater.model.secret import masked
from headwater.pg.connection import COPY_AGAIN, connect, translated
from headwater.sources.postgres.catalog import ARRIVAL, EVENT_KEY, ColumnTypes, Layout, stream_schema
from headwater.sources.postgres.guard.wal_messages import Cut, Label, parse_note
from headwater.sources.postgres.tables import homes, learned
from headwater.sources.postgres.wal.reader import Segment, TableRequest, WalMessage, WalRead, read_wal
from headwater.sources.postgres.wal.segment import cut
from headwater.sources.postgres.wal.transactions import DEFAULT, Peek, Tuning

_SEGMENT_BYTES = 16 << 20  # a WAL segment: less than that frees nothing

Tables = Mapping[str, TableState]


@dataclass(frozen=True)
class WalWindow:
    """Everything up to `end`, decoded, waiting to be landed."""

    end: LsnMark
    segments: tuple[Segment, ...]
    more: bool = False  # there is more WAL behind it
    warnings: tuple[str, ...] = ()

    def rows_of(self, stream: str) -> int:
        return sum(segment.rows for segment in self.segments if segment.stream == stream)


class WalWindows:
    """Reads the slot of one pipeline. Decoded changes lie in a local folder until the next window."""

    def __init__(
        self, settings: PostgresSourceSettings, column_types: ColumnTypes, cores: int, tuning: Tuning = DEFAULT
    ) -> None:
        self._settings, self._column_types, self._cores, self._tuning = settings, column_types, cores, tuning
        self._home = tempfile.TemporaryDirectory(prefix="headwater-wal-", ignore_cleanup_errors=True)
        self._folder = Path(self._home.name) / "window"

    def close(self) -> None:
        self._home.cleanup()

    def following(self, start: LsnMark, tables: Tables, flushed: int) -> WalWindow | None:
        """What lies after the mark, up to about as much as settings allow; None: nothing.

        `tables` are the mark's, with what the catalog knows of them; the WAL is written up to `flushed`.
        """
        size = self._settings.window
        upto = _before(start.lsn + size, flushed)
        wal = self._read(start, start.streams, upto)
        self._check_history(start, wal)
        while upto is not None and not _brings(wal, start):
            size *= 2  # transactions come whole: one that commits far behind is waited for
            upto = _before(start.lsn + size, flushed)
            wal = self._read(start, start.streams, upto)
        cut_lsn = _cut_before(wal, start)
        if not _brings(wal, start) or (cut_lsn is None and _is_negligible(wal, start)):
            return None
        if cut_lsn is not None:
            wal = self._read(start, start.streams, cut_lsn)
            window = self._of_one_key(start, tables, wal, cut_lsn, more=True)
            return replace(window, end=replace(window.end, cut=cut_lsn)) if window.end.lsn == cut_lsn else window
        labelled = any(isinstance(_note(note), Label) for note in wal.notes)  # it was read no further than that
        return self._of_one_key(start, tables, wal, None, more=upto is not None or labelled)

    def _check_history(self, start: LsnMark, wal: WalRead) -> None:
        """A slot that fell back shows the mark's own transaction again; another one there means another history (G9)."""
        last = wal.last_known
        if start.commit is None or last is None or last.lsn < start.commit.lsn:
            return
        if LastCommit(last.lsn, last.transaction, last.time) != start.commit:
            raise SourceChanged(
                f"slot {self._settings.slot} holds transaction {last.transaction} at {lsn_text(last.lsn)}, and the mark saw "
                f"{start.commit.transaction} at {lsn_text(start.commit.lsn)}: the server was restored, or failed over to another "
                "history",
                hint=COPY_AGAIN,
            )

    def again(self, start: LsnMark, end: LsnMark) -> WalWindow:
        """A window that was planned before, perhaps by another process. Raises SourceChanged where the WAL is another."""
        tables = _with_keys(start.streams, {stream: table.key for stream, table in end.streams.items()})
        wal = self._read(start, tables, end.lsn)
        last = _last_commit(wal)
        if end.commit not in (None, start.commit, last):
            raise SourceChanged(
                f"slot {self._settings.slot}: the unfinished window ends with the transaction at "
                f"{lsn_text(end.commit.lsn)}, and the WAL there is another one now",
                hint=COPY_AGAIN,
            )
        return WalWindow(end, _of_these_keys(wal, tables))

    def rows(self, window: WalWindow) -> Sequence[Rows]:
        """One per stream that has any."""
        streams: dict[str, list[Segment]] = {}
        for segment in window.segments:
            if segment.rows or segment.rejects:
                streams.setdefault(segment.stream, []).append(segment)
        tables = window.end.streams
        return [self._stream_rows(stream, tables[stream], segments) for stream, segments in sorted(streams.items())]

    def _stream_rows(self, stream: str, table: TableState, segments: Sequence[Segment]) -> Rows:
        schema = stream_schema(table)
        total = sum(segment.rows for segment in segments)
        parts = min(2 * self._cores, max(1, total // self._tuning.split_rows))
        splits = [
            split
            for segment in segments
            for split in cut(
                segment,
                max(1, round(parts * segment.rows / max(total, 1))),
                homes(table.types, segment.layout, segment.column_types),
                schema,
            )
        ]
        changes = Changes(tuple(table.types), EVENT_KEY, ARRIVAL)
        return Rows(stream, schema, table.key, splits=tuple(splits), changes=changes)

    def _of_one_key(
        self, start: LsnMark, tables: Tables, wal: WalRead, cut_lsn: int | None, *, more: bool
    ) -> WalWindow:
        """A window has one key per stream: where a table's key changes, another window begins."""
        changed = next((segment for segment in wal.segments if not _has_key(segment, start.streams)), None)
        if changed is None:
            return WalWindow(self._end(start, tables, wal, cut_lsn, complete=not more), wal.segments, more)
        if wal.first_new is not None and wal.first_new.lsn < changed.first:
            before = self._read(start, start.streams, changed.first)
            return WalWindow(self._end(start, tables, before, changed.first), before.segments, more=True)
        key = _identity(changed.layout)
        keyed_tables = _with_keys(start.streams, {changed.stream: key})
        wal = self._read(start, keyed_tables, wal.last.end if wal.last else None)
        stale = replace(
            tables[changed.stream], key_positions=positions(key), stale=f"its key is now ({', '.join(key)})"
        )
        # Changes by the former key in the same transaction are left out: the copy that follows holds what they did.
        wal = replace(wal, segments=_of_these_keys(wal, keyed_tables))
        end = self._end(start, {**tables, changed.stream: stale}, wal, cut_lsn)
        return WalWindow(end, wal.segments, more=True, warnings=(f"{changed.stream}: {stale.stale}",))

    def _end(
        self, start: LsnMark, tables: Tables, wal: WalRead, cut_lsn: int | None, *, complete: bool = False
    ) -> LsnMark:
        """The mark behind what was read; with a `cut_lsn` everything before it has been.

        `complete`: the WAL was read to its end, behind all that `tables` know from the catalog.
        """
        seen = {stream: replace(table, landed=None) for stream, table in tables.items()}
        if not complete:
            seen = {
                stream: replace(table, attributes=start.streams[stream].attributes) for stream, table in seen.items()
            }
        refuses = self._settings.type_changes == "refuse"
        for segment in wal.segments:
            table = seen[segment.stream]
            seen[segment.stream] = learned(table, segment.stream, segment.layout, segment.column_types, refuses=refuses)
        last = _last_commit(wal)
        new = last is not None and last.lsn >= start.lsn
        lsn = max(start.lsn, wal.last.end if wal.last and new else 0, cut_lsn or 0)
        labels = tuple(note.text for note in map(_note, wal.notes) if isinstance(note, Label))
        return replace(
            start,
            lsn=lsn,
            turn=start.turn if lsn > start.lsn else start.turn + 1,
            commit=last if new else start.commit,
            streams=seen,
            labels=labels,
        )

    def _read(self, start: LsnMark, tables: Tables, upto: int | None) -> WalRead:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        requests = {
            table.oid: TableRequest(
                stream, table.copied, start.lsn if table.landed is None else table.landed, table.key
            )
            for stream, table in tables.items()
            if table.copied_to is None
        }
        peek = Peek(self._settings.slot, self._settings.publication_name, upto, None)
        with translated(masked(self._settings.url.reveal())):
            connection = connect(self._settings.url)
        with connection:
            return read_wal(
                connection,
                peek,
                requests,
                self._column_types_of(tables),
                self._folder,
                after=start.lsn,
                era=start.ordinal(0),
                stop=lambda note: isinstance(_note(note), Label),
                tuning=self._tuning,
            )

    def _column_types_of(self, tables: Tables) -> Callable[[Layout], Sequence[str]]:
        streams = {table.oid: stream for stream, table in tables.items()}
        as_text = self._settings.as_text
        return lambda layout: self._column_types.of(layout, as_text.get(streams.get(layout.oid, ""), ()))


def _before(lsn: int, end: int) -> int | None:
    """A position to stop at, if it lies before the end of the WAL."""
    return lsn if lsn < end else None


def _brings(wal: WalRead, start: LsnMark) -> bool:
    behind = any(table.landed is not None for table in start.streams.values())
    return behind or wal.first_new is not None


def _is_negligible(wal: WalRead, start: LsnMark) -> bool:
    """Transactions without a row or a word for us, which move the slot by less than a WAL segment."""
    behind = any(table.landed is not None for table in start.streams.values())
    has_label = any(isinstance(_note(note), Label) for note in wal.notes)
    brings = behind or has_label or any(segment.rows or segment.rejects for segment in wal.segments)
    return not brings and wal.last is not None and wal.last.end - start.lsn < _SEGMENT_BYTES


def _last_commit(wal: WalRead) -> LastCommit | None:
    return LastCommit(wal.last.lsn, wal.last.transaction, wal.last.time) if wal.last else None


def _note(message: WalMessage) -> Label | Cut | object:
    return parse_note(message.prefix, message.content)


def _cut_before(wal: WalRead, start: LsnMark) -> int | None:
    """The first LSN at which a verification asked for a window's end, and which was read past."""
    lsns = [note.lsn for note in map(_note, wal.notes) if isinstance(note, Cut)]
    return min((lsn for lsn in lsns if start.lsn < lsn), default=None)


def _has_key(segment: Segment, tables: Tables) -> bool:
    """Whether its changes name rows by the key of its stream; a full image has every column."""
    layout = segment.layout
    return layout.identity not in ("d", "i") or set(_identity(layout)) == set(tables[segment.stream].key)


def _identity(layout: Layout) -> tuple[str, ...]:
    return tuple(column.name for column in layout.columns if column.in_identity)


def _of_these_keys(wal: WalRead, tables: Tables) -> tuple[Segment, ...]:
    return tuple(segment for segment in wal.segments if _has_key(segment, tables))


def _with_keys(tables: Tables, keys: Mapping[str, tuple[str, ...]]) -> Tables:
    return {
        stream: replace(table, key_positions=positions(keys[stream])) if stream in keys else table
        for stream, table in tables.items()
    }
