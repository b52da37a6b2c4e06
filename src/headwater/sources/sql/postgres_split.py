"""A part of a window that an executor reads from PostgreSQL through ADBC, in the snapshot of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.model.errors import SourceUnreachable
from headwater.model.secret import Secret, masked
from headwater.sources.sql.postgres_session import BEGIN, set_session
from headwater.sources.sql.relation import Column
from headwater.sources.sql.types import arrow_schema, exact_batch

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
        import adbc_driver_postgresql.dbapi as adbc  # noqa: PLC0415 - a poll that finds nothing needs no driver
        from adbc_driver_manager import Error  # noqa: PLC0415

        shown = (
            *self.columns,
            *(Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags)),
        )
        schema = arrow_schema(shown)
        try:
            with adbc.connect(self.url.reveal(), autocommit=True) as connection, connection.cursor() as cursor:
                cursor.execute(BEGIN)
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{self.snapshot}'")
                cursor.execute(set_session())
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
                cursor.execute(self.sql)
                with cursor.fetch_record_batch() as reader:
                    for batch in reader:
                        if batch.num_rows:
                            yield exact_batch(batch, shown, schema, self.stream)
        except Error as error:
            raise SourceUnreachable(
                f"{self.stream}: the read from {masked(self.url.reveal())} broke off: "
                f"{masked(' '.join(str(error).split()))}",
                hint="the window is read again by the next cycle; check the server if it happens again",
            ) from None
