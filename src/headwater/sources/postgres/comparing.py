"""Where tables and the database are compared: in a snapshot of a known place in the log, at which a window ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
from psycopg import sql

from headwater.config.postgres_source import PostgresSource
from headwater.model.changes import OP, POSITION, SOURCE_TIME, position
from headwater.model.comparing import Again, Comparison, NotCompared, Spans, Standing
from headwater.model.errors import SnapshotGone
from headwater.model.lsn import lsn_number, lsn_text
from headwater.model.lsn_mark import LsnMark, TableSeen
from headwater.model.marks import Mark, mark_from_json
from headwater.model.rejects import Reject, SetAside
from headwater.sources.postgres.change_schema import ROW, stream_schema
from headwater.sources.postgres.copying.rows import CopyOrder, copied_rows
from headwater.sources.postgres.copying.snapshot import CopySnapshot
from headwater.sources.postgres.evolving import homes
from headwater.sources.postgres.kinds import Kinds
from headwater.sources.postgres.log.values import typed
from headwater.sources.postgres.tables import TablesNow
from headwater.sources.split_rows import ArrowChangeRows

_COPIED = 2  # the minor number of a copy's rows


@dataclass(frozen=True)
class SnapshotRows:
    """The tables of a mark, as they are in one snapshot."""

    settings: PostgresSource
    snapshot: CopySnapshot
    now: TablesNow
    kinds: Kinds
    splits: int

    def of(self, mark: LsnMark, stream: str, where: str = "") -> ArrowChangeRows:
        """All rows of a stream's table, or some of them."""
        seen, table = mark.tables[stream], self.now.tables[stream]
        kinds = self.kinds.of(table.layout, self.settings.as_text.get(stream, ()))
        conditions = [text for text in (self.settings.where.get(stream, ""), where) if text]
        order = CopyOrder(
            stream=stream,
            table=table,
            kinds=kinds,
            homes=homes(seen.columns, table.layout, kinds),
            schema=stream_schema(seen),
            where="\n) AND (\n".join(conditions),
            snapshot=self.snapshot.name,
            place=mark.place(self.snapshot.lsn),
            moment=self.snapshot.moment,
            first=0,
            end=None,
            replaces=False,
            splits=self.splits,
        )
        return copied_rows(self.settings.url, order)


class LogMeeting:
    """The place is the snapshot's; a message in the log asks for a window that ends there."""

    def __init__(self, rows: SnapshotRows) -> None:
        self._rows, self._place = rows, rows.snapshot.lsn

    def standing(self, mark: Mark | None) -> Standing:
        if not isinstance(mark, LsnMark) or not mark.slot or mark.lsn < self._place:
            return "before"
        return "here" if mark.lsn == self._place else "past"

    def beyond(self, end: str) -> bool:
        try:
            mark = mark_from_json(json.loads(end))
        except ValueError:
            return lsn_number(end.partition(";")[0]) > self._place
        return isinstance(mark, LsnMark) and mark.lsn > self._place

    def streams(self, mark: Mark) -> Sequence[str]:
        return sorted(mark.tables) if isinstance(mark, LsnMark) else ()

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        assert isinstance(mark, LsnMark)  # noqa: S101 - `standing` saw it
        if self._place not in (mark.lsn, mark.cut):
            raise SnapshotGone(  # the next look has another place
                f"the pipeline was just past {lsn_text(self._place)} when it was asked to stop there; nothing was compared",
                hint="run verify again",
            )
        return [self._one(mark, stream, seen) for stream, seen in sorted(mark.tables.items())]

    def _one(self, mark: LsnMark, stream: str, seen: TableSeen) -> Comparison | NotCompared:
        why = self._why_not(stream, seen)
        if why:
            return NotCompared(stream, why)
        return Comparison(
            self._rows.of(mark, stream), follows_deletes=True, narrowed=partial(self._narrowed, mark, stream)
        )

    def _why_not(self, stream: str, seen: TableSeen) -> str:
        if stream not in self._rows.now.tables:
            return "it is not there any more"
        if seen.copied_to is not None:
            return "it is being copied"
        if seen.copied > self._place:
            return "it was copied at a later place"
        return f"it has to be copied again ({seen.stale})" if seen.stale else ""

    def _narrowed(self, mark: LsnMark, stream: str, wanted: Spans | pa.Table) -> Comparison:
        where = _between(wanted) if isinstance(wanted, Spans) else among(wanted)
        return Comparison(self._rows.of(mark, stream, where), follows_deletes=True)


def now_of_keys(rows: SnapshotRows, mark: LsnMark, keys: Mapping[str, pa.Table]) -> Iterator[Again]:
    """A read for every key that is there, a delete for every one that is not; both at the snapshot's place."""
    for stream, wanted in keys.items():
        rejects: list[Reject] = []
        source = rows.of(mark, stream, among(wanted))
        found = [batch for split in source.splits for batch in split.read_setting_aside(rejects.append)]  # type: ignore[attr-defined]
        there = pa.Table.from_batches(found, source.schema).select(list(source.key))
        aside = _keys_of(rejects, mark.tables[stream], source)
        gone = _without(wanted.select(list(source.key)), pa.concat_tables([there, aside]))
        place = position(mark.place(rows.snapshot.lsn), _COPIED)
        held = HeldSplit((*found, *_deletes(gone, source.schema, place, rows.snapshot.moment)), tuple(rejects))
        yield Again(replace(source, splits=(held,), is_copy=False))


def _keys_of(rejects: Sequence[Reject], seen: TableSeen, rows: ArrowChangeRows) -> pa.Table:
    """Of rows that are there, though they cannot be kept."""
    texts = [json.loads(str(reject.place["row"])) for reject in rejects]
    columns = [
        typed(pa.array([str(row[name]).encode() for row in texts], pa.binary()), seen.columns[name]).array
        for name in rows.key
    ]
    return pa.table(columns, schema=pa.schema([rows.schema.field(name) for name in rows.key]))


def _without(keys: pa.Table, others: pa.Table) -> pa.Table:
    names = keys.column_names
    plain = keys.cast(pa.schema([others.schema.field(name) for name in names]))
    return plain.join(others, names, join_type="left anti") if others.num_rows else plain


def _deletes(keys: pa.Table, schema: pa.Schema, place: int, moment: int) -> list[pa.RecordBatch]:
    """Change rows that delete these keys."""
    count = keys.num_rows
    constant = {
        OP: pa.array(["d"] * count, pa.string()),
        POSITION: pa.array([Decimal(place)] * count, schema.field(POSITION).type),
        SOURCE_TIME: pa.array([moment] * count, pa.int64()).cast(schema.field(SOURCE_TIME).type),
        ROW: pa.array([0] * count, pa.int64()),
    }
    columns = [
        keys.column(field.name)
        if field.name in keys.column_names
        else constant.get(field.name, pa.nulls(count, field.type))
        for field in schema
    ]
    return pa.table(columns, schema=schema).combine_chunks().to_batches() if count else []


def among(keys: pa.Table) -> str:
    """A condition in SQL: rows with one of these keys."""
    names = sql.SQL(", ").join(sql.Identifier(name) for name in keys.column_names)
    rows = zip(*(_literals(column) for column in keys.columns), strict=True)
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    return f"({names.as_string()}) IN ({values})" if keys.num_rows else "false"


def _between(spans: Spans) -> str:
    name = sql.Identifier(spans.column).as_string()
    parts = []
    for low, high in spans.bounds:
        edges = [f"{name} {sign} {_literal(value)}" for sign, value in ((">=", low), ("<=", high)) if value is not None]
        parts.append(" AND ".join(edges) or "true")
    return " OR ".join(f"({part})" for part in parts) or "false"


def _literals(column: pa.ChunkedArray) -> list[str]:
    return [_literal(value) for value in column.to_pylist()]


def _literal(value: object) -> str:
    """Without a type: the column that it is compared with has one."""
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return sql.Literal(str(value)).as_string().removesuffix("::text")


@dataclass(frozen=True)
class HeldSplit:
    """Rows that are here already."""

    batches: tuple[pa.RecordBatch, ...] = field(repr=False)
    rejects: tuple[Reject, ...] = field(repr=False, default=())

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def read(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            set_aside(reject)
        return iter(self.batches)
