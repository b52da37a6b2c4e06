"""Verification: compares lake and database in an exported snapshot; a window ends at its LSN."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial

import pyarrow as pa
from psycopg import sql

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.errors import SnapshotGone
from headwater.model.position.lsn import lsn_number, lsn_text
from headwater.model.position.marks import LsnMark, Mark, mark_from_json
from headwater.model.position.stream_state import TableState
from headwater.model.protocols.source import Comparison, CurrentRows, KeyRanges, NotCompared, Standing
from headwater.model.rows import OP, POSITION, SOURCE_TIME, MemorySplit, Reject, Rows, position
from headwater.sources.postgres.catalog import ROW, ColumnTypes, stream_schema
from headwater.sources.postgres.initial_copy.snapshot import CopySnapshot
from headwater.sources.postgres.initial_copy.windows import CopyRequest, copied_rows
from headwater.sources.postgres.tables import TablesNow, homes
from headwater.sources.postgres.wal.messages import typed

_COPIED = 2  # the minor number of a copy's rows


@dataclass(frozen=True)
class SnapshotReader:
    """The tables of a mark in one exported snapshot."""

    settings: PostgresSourceSettings
    snapshot: CopySnapshot
    now: TablesNow
    column_types: ColumnTypes
    splits: int

    def of(self, mark: LsnMark, stream: str, where: str = "") -> Rows:
        """All rows of a stream's table, or some of them."""
        seen, table = mark.streams[stream], self.now.tables[stream]
        column_types = self.column_types.of(table.layout, self.settings.as_text.get(stream, ()))
        conditions = [text for text in (self.settings.where.get(stream, ""), where) if text]
        request = CopyRequest(
            stream=stream,
            table=table,
            column_types=column_types,
            homes=homes(seen.types, table.layout, column_types),
            schema=stream_schema(seen),
            where="\n) AND (\n".join(conditions),
            snapshot=self.snapshot.name,
            ordinal=mark.ordinal(self.snapshot.lsn),
            moment=self.snapshot.moment,
            first=0,
            end=None,
            replaces=False,
            splits=self.splits,
        )
        return copied_rows(self.settings.url, request)


class WalComparisonPoint:
    """The LSN is the snapshot's; a WAL message asks for a window that ends there."""

    def __init__(self, rows: SnapshotReader) -> None:
        self._rows, self._lsn = rows, rows.snapshot.lsn

    def standing(self, mark: Mark | None) -> Standing:
        if not isinstance(mark, LsnMark) or not mark.slot or mark.lsn < self._lsn:
            return "before"
        return "here" if mark.lsn == self._lsn else "past"

    def beyond(self, end: str) -> bool:
        try:
            mark = mark_from_json(json.loads(end))
        except ValueError:
            return lsn_number(end.partition(";")[0]) > self._lsn
        return isinstance(mark, LsnMark) and mark.lsn > self._lsn

    def streams(self, mark: Mark) -> Sequence[str]:
        return sorted(mark.streams) if isinstance(mark, LsnMark) else ()

    def compared(self, mark: Mark) -> Sequence[Comparison | NotCompared]:
        assert isinstance(mark, LsnMark)  # noqa: S101 - `standing` saw it
        if self._lsn not in (mark.lsn, mark.cut):
            raise SnapshotGone(  # the next attempt has another LSN
                f"the pipeline was just past {lsn_text(self._lsn)} when it was asked to stop there; nothing was compared",
                hint="run verify again",
            )
        return [self._one(mark, stream, seen) for stream, seen in sorted(mark.streams.items())]

    def _one(self, mark: LsnMark, stream: str, seen: TableState) -> Comparison | NotCompared:
        why = self._why_not(stream, seen)
        if why:
            return NotCompared(stream, why)
        return Comparison(
            self._rows.of(mark, stream), follows_deletes=True, narrowed=partial(self._narrowed, mark, stream)
        )

    def _why_not(self, stream: str, seen: TableState) -> str:
        if stream not in self._rows.now.tables:
            return "it no longer exists"
        if seen.copied_to is not None:
            return "it is being copied"
        if seen.copied > self._lsn:
            return "it was copied at a later LSN"
        return f"it has to be copied again ({seen.stale})" if seen.stale else ""

    def _narrowed(self, mark: LsnMark, stream: str, wanted: KeyRanges | pa.Table) -> Comparison:
        where = _between(wanted) if isinstance(wanted, KeyRanges) else among(wanted)
        return Comparison(self._rows.of(mark, stream, where), follows_deletes=True)


def now_of_keys(rows: SnapshotReader, mark: LsnMark, keys: Mapping[str, pa.Table]) -> Iterator[CurrentRows]:
    """A read for every key that is there, a delete for every one that is not; both at the snapshot's LSN."""
    for stream, wanted in keys.items():
        rejects: list[Reject] = []
        source = rows.of(mark, stream, among(wanted))
        batches = [batch for split in source.splits or () for batch in split.read(rejects.append)]
        present = pa.Table.from_batches(batches, source.schema).select(list(source.key))
        rejected = _keys_of(rejects, mark.streams[stream], source)
        absent = _without(wanted.select(list(source.key)), pa.concat_tables([present, rejected]))
        at = position(mark.ordinal(rows.snapshot.lsn), _COPIED)
        split = MemorySplit((*batches, *_deletes(absent, source.schema, at, rows.snapshot.moment)), tuple(rejects))
        assert source.changes is not None  # noqa: S101 - rows of a copy
        yield CurrentRows(replace(source, splits=(split,), changes=replace(source.changes, is_copy=False)))


def _keys_of(rejects: Sequence[Reject], seen: TableState, rows: Rows) -> pa.Table:
    """Of rows that are there, though they cannot be kept."""
    texts, types = [json.loads(str(reject.location["row"])) for reject in rejects], seen.types
    columns = [
        typed(pa.array([str(row[name]).encode() for row in texts], pa.binary()), types[name]).array for name in rows.key
    ]
    return pa.table(columns, schema=pa.schema([rows.schema.field(name) for name in rows.key]))


def _without(keys: pa.Table, others: pa.Table) -> pa.Table:
    names = keys.column_names
    plain = keys.cast(pa.schema([others.schema.field(name) for name in names]))
    return plain.join(others, names, join_type="left anti") if others.num_rows else plain


def _deletes(keys: pa.Table, schema: pa.Schema, at: int, moment: int) -> list[pa.RecordBatch]:
    """Change rows that delete these keys."""
    count = keys.num_rows
    constant = {
        OP: pa.array(["d"] * count, pa.string()),
        POSITION: pa.array([Decimal(at)] * count, schema.field(POSITION).type),
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
    rows = zip(*(map(_literal, column.to_pylist()) for column in keys.columns), strict=True)
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    return f"({names.as_string()}) IN ({values})" if keys.num_rows else "false"


def _between(spans: KeyRanges) -> str:
    name = sql.Identifier(spans.column).as_string()
    conditions = []
    for low, high in spans.bounds:
        bounds = [
            f"{name} {sign} {_literal(value)}" for sign, value in ((">=", low), ("<=", high)) if value is not None
        ]
        conditions.append(" AND ".join(bounds) or "true")
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def _literal(value: object) -> str:
    """Without a type: the compared column has one."""
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    return sql.Literal(str(value)).as_string().removesuffix("::text")
