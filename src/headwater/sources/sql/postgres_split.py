"""A part of a window that an executor reads from PostgreSQL through ADBC, in the snapshot of the plan."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.errors import SourceUnreachable
from headwater.model.secret import Secret, masked
from headwater.sources.sql.postgres_session import BEGIN, set_session
from headwater.sources.sql.relation import Column
from headwater.sources.sql.types import arrow_schema, exact_batch

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcDatabase

_BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class PostgresSplit:
    """One statement in one exported snapshot."""

    stream: str
    url: Secret  # prints as ****
    snapshot: str
    sql: str = field(repr=False)  # holds values of the cursor
    columns: tuple[Column, ...] = field(repr=False)
    flags: int = 0
    rows: int | None = None

    def read(self) -> Iterator[pa.RecordBatch]:
        """One connection, one transaction; batches of a few megabytes, so that memory stays flat."""
        from adbc_driver_manager import AdbcConnection, AdbcStatement, Error  # noqa: PLC0415 - not for an idle poll

        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        shown = (*self.columns, *flags)
        schema = arrow_schema(shown)
        try:
            with AdbcConnection(_database(self.url)) as connection, AdbcStatement(connection) as statement:
                for sql in (BEGIN, f"SET TRANSACTION SNAPSHOT '{self.snapshot}'", set_session()):
                    statement.set_sql_query(sql)
                    statement.execute_update()
                statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                statement.set_sql_query(self.sql)
                stream, _ = statement.execute_query()
                with pa.RecordBatchReader.from_stream(stream) as reader:
                    for batch in reader:
                        if batch.num_rows:
                            yield exact_batch(batch, shown, schema, self.stream)
        except (Error, pa.ArrowException, OSError) as error:
            raise SourceUnreachable(
                f"{self.stream}: the read from {masked(self.url.reveal())} broke off: "
                f"{masked(' '.join(str(error).split()))}",
                hint="the window is read again by the next cycle; check the server if it happens again",
            ) from None


@functools.lru_cache(maxsize=8)
def _database(url: Secret) -> AdbcDatabase:
    """Learns the server's types once in a process, which takes ten times as long as to connect."""
    import adbc_driver_postgresql  # noqa: PLC0415

    database: AdbcDatabase = adbc_driver_postgresql.connect(url.reveal())
    return database
