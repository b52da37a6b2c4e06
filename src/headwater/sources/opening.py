"""From settings to a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.objects_source import ObjectsSource
from headwater.config.pipeline import SourceSettings
from headwater.config.s3 import S3Settings
from headwater.config.sql_source import SqlSource
from headwater.model.errors import InputError
from headwater.model.ledger import Ledger
from headwater.model.source import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Surroundings:
    """What some kinds of source need of the project; each is asked for when a source first needs it."""

    spark: Callable[[], SparkSession] | None = None  # the session whose JVM holds JDBC drivers
    ledger: Callable[[], Ledger] | None = None  # the pipeline's bookmarks
    s3: S3Settings = field(default_factory=S3Settings)


_ALONE = Surroundings()


def open_source(settings: SourceSettings, folder: Path, cores: int, around: Surroundings = _ALONE) -> Source:
    """The source of one pipeline; relative paths are taken from `folder`. Connects when first used."""
    if settings.sql is not None:
        return _open_sql(settings.sql, folder, cores, around.spark)
    if settings.kafka is not None:
        from headwater.sources.kafka.source import ReadTopics  # noqa: PLC0415 - other sources need no librdkafka

        return ReadTopics(settings.kafka, folder, cores)
    if settings.objects is not None:
        return _open_objects(settings.objects, folder, cores, around)
    if settings.postgres is not None:
        from headwater.sources.postgres.source import CapturedPostgres  # noqa: PLC0415 - other sources need none of it

        return CapturedPostgres(settings.postgres, cores)
    raise InputError(
        "the pipeline has no source", hint="write source: {sql: …}, {kafka: …}, {objects: …} or {postgres: …}"
    )


def _open_objects(settings: ObjectsSource, folder: Path, cores: int, around: Surroundings) -> Source:
    from headwater.sources.objects.feed_opening import open_feed  # noqa: PLC0415 - other sources need none of it
    from headwater.sources.objects.opening import open_container  # noqa: PLC0415
    from headwater.sources.objects.source import WatchedObjects  # noqa: PLC0415

    if around.ledger is None:
        raise InputError(
            "a source of objects keeps bookmarks in a progress store", hint="run it as a pipeline, or pass store=…"
        )
    container = open_container(settings, folder, around.s3)
    feed = open_feed(settings, container, folder, around.s3)
    return WatchedObjects(settings, container, around.ledger, feed, cores=cores)


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
                hint="pass one: open_source(…, spark=session)",
            )
        return PolledSql(settings, JdbcDatabase(settings, folder, spark), cores)
    shown = scheme if separator else "what is written"
    raise InputError(
        f"url: {shown} is no kind of database that can be read",
        hint="write postgresql://…, sqlite:///…, mysql://…, mariadb://…, mssql://…, oracle://… or jdbc:…",
    )
