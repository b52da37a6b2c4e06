"""A table of a SQL database, a pipeline from it into the lake, and statements that change either side."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from headwater.engine.result import CycleResult
from headwater.engine.verify.report import VerifyReport
from headwater.model.faults import Faults
from headwater.model.protocols.source import Source
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PostgresTable(World):
    """`url` is the pipeline's way to the database, if that is another one."""

    def __init__(
        self,
        database: str,
        folder: Path,
        spark: SparkSession,
        table: str,
        source: dict[str, Any],
        *,
        url: str = "",
        sink: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.database, self.table = database, table
        super().__init__(
            folder,
            {"sql": {"url": url or database, **source}},
            [{"iceberg": {"table": table, **(sink or {"mode": "merge"})}}],
            spark=spark,
            **settings,
        )

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.database) as connection:
            for statement in statements:
                connection.execute(statement)

    def lake(self, statement: str) -> list[tuple[Any, ...]]:
        """`{t}` stands for the table."""
        return self.select(statement.format(t=self.table))

    def run(self, faults: Faults | None = None, source: Source | None = None) -> CycleResult:
        result = super().run(faults, source)
        assert result.error is None, result.error
        return result


class SqliteTable(PostgresTable):
    """The same in a file of the project's folder."""

    def sql(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.folder / Path(self.database).name)) as connection, connection:
            for statement in statements:
                connection.execute(statement)


def differences(verified: VerifyReport, table: int = 0) -> dict[str, list]:
    """The keys that differ, by kind."""
    examples = verified.tables[table].examples(1_000_000)
    return {kind: sorted(tuple(key.values()) for key in keys) for kind, keys in examples.items() if keys}
