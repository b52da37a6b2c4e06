"""From settings to a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.pipeline import SourceSettings
from headwater.config.sql_source import SqlSource
from headwater.model.errors import InputError
from headwater.model.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_source(
    settings: SourceSettings, folder: Path, cores: int, spark: Callable[[], SparkSession] | None = None
) -> Source:
    """The source of one pipeline; relative paths are taken from `folder`. Connects when first used.

    `spark` gives the session whose JVM holds JDBC drivers; sources that need none never call it.
    """
    if settings.sql is not None:
        return _open_sql(settings.sql, folder, cores, spark)
    if settings.kafka is not None:
        from headwater.sources.kafka.source import ReadTopics  # noqa: PLC0415 - other sources need no librdkafka

        return ReadTopics(settings.kafka, folder, cores)
    raise InputError("the pipeline has no source", hint="write source: {sql: …} or source: {kafka: …}")


def _open_sql(settings: SqlSource, folder: Path, cores: int, spark: Callable[[], SparkSession] | None) -> Source:
    from headwater.sources.sql.source import PolledSql  # noqa: PLC0415 - other kinds of source need none of it

    url = settings.url.reveal()
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        from headwater.sources.sql.postgres import PostgresDatabase  # noqa: PLC0415

        return PolledSql(settings, PostgresDatabase(settings), cores)
    if scheme == "sqlite":
        from headwater.sources.sql.sqlite import SqliteDatabase  # noqa: PLC0415

        if not rest.startswith("/") or rest == "/":
            raise InputError(
                "url: a SQLite address names a file", hint="write sqlite:///shop.db, or sqlite:////full/path/shop.db"
            )
        return PolledSql(settings, SqliteDatabase(settings, str(folder / rest[1:])), cores)
    from headwater.sources.sql.jdbc_address import is_jdbc  # noqa: PLC0415

    if is_jdbc(url):
        from headwater.sources.sql.jdbc import JdbcDatabase  # noqa: PLC0415

        if spark is None:
            raise InputError(
                "url: a database behind a JDBC driver is read in a Spark session",
                hint="pass one: open_source(…, spark=lambda: session)",
            )
        return PolledSql(settings, JdbcDatabase(settings, folder, spark), cores)
    shown = scheme if separator else "what is written"
    raise InputError(
        f"url: {shown} is no kind of database that can be read",
        hint="write postgresql://…, sqlite:///…, mysql://…, mariadb://…, mssql://…, oracle://… or jdbc:…",
    )
