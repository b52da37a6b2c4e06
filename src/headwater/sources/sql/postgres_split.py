"""A part of a window that an executor reads from PostgreSQL, in the snapshot of the plan."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa

from headwater.model.errors import SourceUnreachable
from headwater.model.rejects import SetAside
from headwater.model.secret import Secret, masked
from headwater.sources.sql.copy_binary import decode, readable
from headwater.sources.sql.copy_stream import CopyRefused, can_copy, copy_rows
from headwater.sources.sql.postgres_exact import exact_part
from headwater.sources.sql.postgres_session import BEGIN, set_session
from headwater.sources.sql.relation import Column
from headwater.sources.sql.types import arrow_schema
from headwater.sources.sql.unkept import Part, RowNames, Unkept, kept_rows, kept_whole

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcDatabase

_BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class PostgresSplit:
    """One statement in one exported snapshot."""

    names: RowNames
    url: Secret  # prints as ****
    snapshot: str
    sql: str = field(repr=False)  # holds values of the cursor
    flags: int = 0
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        return kept_whole(self.read_parts(), self.names)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        return kept_rows(self.read_parts(), self.names, set_aside)

    def read_parts(self) -> Iterator[Part]:
        """One connection, one transaction; batches of a few megabytes, so that memory stays flat."""
        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        shown = (*self.names.columns, *flags)
        schema = arrow_schema(shown)
        with self._translated():
            for batch, unkept in self._batches(shown):
                if batch.num_rows:
                    yield exact_part(batch, shown, schema, unkept)

    def _batches(self, columns: Sequence[Column]) -> Iterator[tuple[pa.RecordBatch, Sequence[Unkept]]]:
        """By our own decoder, which takes a third of ADBC's time, wherever types and connection allow it."""
        if readable(columns):
            with psycopg.connect(self.url.reveal(), autocommit=True, client_encoding="UTF8") as connection:
                if can_copy(connection):
                    connection.execute(";".join(self._opening()))
                    for chunk in copy_rows(connection, self.sql, len(columns)):
                        yield decode(chunk.data, chunk.starts, chunk.ends, columns, self.names.stream)
                    return
        for batch in self._through_adbc():
            yield batch, ()

    def _through_adbc(self) -> Iterator[pa.RecordBatch]:
        from adbc_driver_manager import AdbcConnection, AdbcStatement  # noqa: PLC0415 - rarely needed

        with AdbcConnection(_database(self.url)) as connection, AdbcStatement(connection) as statement:
            for sql in self._opening():
                statement.set_sql_query(sql)
                statement.execute_update()
            statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            statement.set_sql_query(self.sql)
            stream, _ = statement.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as reader:
                yield from reader

    def _opening(self) -> tuple[str, ...]:
        return BEGIN, f"SET TRANSACTION SNAPSHOT '{self.snapshot}'", set_session()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from adbc_driver_manager import Error as AdbcError  # noqa: PLC0415 - not for an idle poll

        try:
            yield
        except (psycopg.Error, CopyRefused, AdbcError, pa.ArrowException, OSError) as error:
            raise SourceUnreachable(
                f"{self.names.stream}: the read from {masked(self.url.reveal())} broke off: "
                f"{masked(' '.join(str(error).split()))}",
                hint="the window is read again by the next cycle; check the server if it happens again",
            ) from None


@functools.lru_cache(maxsize=8)
def _database(url: Secret) -> AdbcDatabase:
    """Learns the server's types once in a process, which takes ten times as long as to connect."""
    import adbc_driver_postgresql  # noqa: PLC0415

    database: AdbcDatabase = adbc_driver_postgresql.connect(url.reveal())
    return database
