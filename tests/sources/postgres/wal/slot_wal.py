"""A slot of a test's own, read as the source reads it, and the raw messages for those who want to see them."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa

from headwater.model.rows import Reject
from headwater.pg.types import column_type
from headwater.sources.postgres.catalog import Layout
from headwater.sources.postgres.wal.reader import TableRequest, WalMessage, WalRead, read_wal
from headwater.sources.postgres.wal.segment import SegmentSplit, cut
from headwater.sources.postgres.wal.transactions import DEFAULT, Peek, Tuning
from tests.support.replication_slots import drop_slot

RAW = "SELECT data FROM pg_logical_slot_peek_binary_changes({}, NULL, NULL, 'proto_version', '1', 'publication_names', {}, 'messages', 'true')"


@dataclass
class Reading:
    """One read of the log, with all of its rows."""

    wal: WalRead
    tables: dict[str, list[pa.Table]]  # per segment, in its own columns
    rejects: list[Reject]

    def rows(self, stream: str) -> list[dict]:
        """In the order of the log, whatever segment they are in."""
        rows = [row for table in self.tables.get(stream, ()) for row in table.to_pylist()]
        return sorted(rows, key=lambda row: row["_position"])

    def short(self, stream: str, *columns: str) -> list[tuple]:
        """Operation and some columns of each row."""
        return [(row["_op"], *(row.get(column) for column in columns)) for row in self.rows(stream)]


class SlotWal:
    """A publication and a slot; what happens after it was made can be read."""

    def __init__(self, url: str, publication: str, slot: str) -> None:
        self.url, self.publication, self.slot = url, publication, slot
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def sql(self, statements: str, values: list | None = None) -> psycopg.Cursor:
        return self.connection.execute(statements, values)

    def oid(self, table: str) -> int:
        return self.sql("SELECT %s::regclass::oid::bigint", [table]).fetchone()[0]

    def messages(self) -> list[bytes]:
        self.sql("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET extra_float_digits = 3")
        quoted = psycopg.sql.Literal('"' + self.publication.replace('"', '""') + '"').as_string()
        with self.connection.cursor(binary=True) as cursor:
            return [data for (data,) in cursor.execute(RAW.format(f"'{self.slot}'", quoted)).fetchall()]

    def read(self, tables: dict[str, tuple[str, ...]] | dict[int, TableRequest], **how) -> Reading:
        """`tables`: name → key, or oids → orders; `how` as `read_into`."""
        with tempfile.TemporaryDirectory() as folder:
            wal = self.read_into(Path(folder), tables, **how)
            tables_read: dict[str, list[pa.Table]] = {}
            rejects: list[Reject] = []
            for segment in wal.segments:
                batches = [batch for split in splits_of(segment) for batch in split.read(rejects.append)]
                # Out of the mapped file, which is about to go.
                copied = pa.ipc.open_stream(_serialized(batches, segment.schema)).read_all()
                tables_read.setdefault(segment.stream, []).append(copied)
                assert copied.num_rows == segment.rows
            return Reading(wal, tables_read, rejects)

    def read_into(
        self,
        folder: Path,
        tables: dict[str, tuple[str, ...]] | dict[int, TableRequest],
        *,
        after: int = 0,
        upto: int | None = None,
        changes: int | None = None,
        column_types: Callable[[Layout], list[str]] | None = None,
        stop: Callable[[WalMessage], bool] = lambda _: False,
        era: int = 0,
        tuning: Tuning = DEFAULT,
    ) -> WalRead:
        orders = {
            self.oid(key) if isinstance(key, str) else key: order
            if isinstance(order, TableRequest)
            else TableRequest(str(key), 0, after, order)
            for key, order in tables.items()
        }
        peek = Peek(self.slot, self.publication, upto, changes)
        with psycopg.connect(self.url, autocommit=True) as connection:
            return read_wal(
                connection,
                peek,
                orders,
                column_types or column_types_of,
                folder,
                after=after,
                era=era,
                stop=stop,
                tuning=tuning,
            )


def splits_of(segment, count: int = 1) -> tuple[SegmentSplit, ...]:
    """In the segment's own columns."""
    names = [column.name for column in segment.layout.columns]
    return cut(segment, count, [(name, name) for name in names], segment.schema)


def column_types_of(layout: Layout) -> list[str]:
    return [column_type(column.type, column.modifier) or "string" for column in layout.columns]


@contextmanager
def slot_wal(url: str, tables: str = "", publication: str = "p", options: str = "") -> Iterator[SlotWal]:
    """`tables`: statements that make them, before the slot is there."""
    name = f"t_{uuid.uuid4().hex[:16]}"
    log = SlotWal(url, publication, name)
    if tables:
        log.sql(tables)
    quoted = psycopg.sql.Identifier(publication).as_string()
    log.sql(f"CREATE PUBLICATION {quoted} FOR ALL TABLES {options}")
    log.sql("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    try:
        yield log
    finally:
        log.connection.close()
        drop_slot(url, name)


def _serialized(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()
