"""A split that an executor reads from PostgreSQL, in the exported snapshot of the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa

from headwater.model.rows import ExactBatch, OnReject, RowIdentity, exact_rows
from headwater.model.secret import Secret, masked
from headwater.model.types import Column, arrow_schema
from headwater.pg.connection import translate
from headwater.pg.copy.binary import decode, exact_batch
from headwater.pg.copy.reader import DEFAULT, SnapshotReader, Tuning
from headwater.pg.copy.stream import CopyRefused


@dataclass(frozen=True)
class PostgresSplit:
    """One statement in one exported snapshot."""

    identity: RowIdentity
    url: Secret  # prints as ****
    snapshot: str
    sql: str = field(repr=False)  # holds values of the cursor
    flags: int = 0
    rows: int | None = None
    tuning: Tuning = DEFAULT

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        return exact_rows(self.read_exact(), self.identity, on_reject)

    def read_exact(self) -> Iterator[ExactBatch]:
        """One connection, one transaction; batches of a few megabytes, so that memory stays flat."""
        flags = (Column(f"headwater_flag_{number}", "int64", nullable=True) for number in range(self.flags))
        columns = (*self.identity.columns, *flags)
        schema = arrow_schema(columns)
        jsonb = frozenset(column.name for column in columns if column.is_jsonb)
        with self._translated(), SnapshotReader(self.url, self.snapshot, tuning=self.tuning) as reader:
            for chunk in reader.chunks(self.sql, len(columns)):
                batch, misfits = decode(chunk.data, chunk.starts, chunk.ends, schema, self.identity.stream, jsonb=jsonb)
                yield exact_batch(batch, columns, schema, misfits)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, CopyRefused, pa.ArrowException, OSError) as error:
            subject = f"{self.identity.stream}: the read from {masked(self.url.reveal())} broke off"
            raise translate(error, subject, "copy") from None
