"""From settings to a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.pipeline import SourceSettings
from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.bookmarks import Ledger
from headwater.model.errors import InputError
from headwater.model.protocols.source import Source
from headwater.sources.sql.database import DEFAULT_TUNING, Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SourceContext:
    """What some kinds of source need of the project; each is asked for when a source first needs it."""

    spark: Callable[[], SparkSession] | None = None  # the session whose JVM holds JDBC drivers
    ledger: Callable[[], Ledger] | None = None  # the pipeline's bookmarks
    s3: S3Settings = field(default_factory=S3Settings)
    sql: Tuning = DEFAULT_TUNING


_ALONE = SourceContext()


def open_source(settings: SourceSettings, folder: Path, cores: int, around: SourceContext = _ALONE) -> Source:
    """The source of one pipeline; relative paths are taken from `folder`. Connects when first used."""
    if settings.sql is not None:
        return _open_sql(settings.sql, folder, cores, around)
    if settings.kafka is not None:
        from headwater.sources.kafka.source import KafkaSource

        return KafkaSource(settings.kafka, folder, cores)
    if settings.objects is not None:
        return _open_objects(settings.objects, folder, cores, around)
    if settings.postgres is not None:
        from headwater.sources.postgres.source import PostgresSource

        return PostgresSource(settings.postgres, cores)
    raise InputError(
        "the pipeline has no source", hint="write source: {sql: …}, {kafka: …}, {objects: …} or {postgres: …}"
    )


def _open_objects(settings: ObjectsSourceSettings, folder: Path, cores: int, around: SourceContext) -> Source:
    from headwater.sources.objects.notifications.poller import open_feed
    from headwater.sources.objects.source import ObjectsSource
    from headwater.storage.open import open_container

    if around.ledger is None:
        raise InputError(
            "a source of objects keeps bookmarks in a progress store", hint="run it as a pipeline, or pass store=…"
        )
    container = open_container(settings, folder, around.s3)
    feed = open_feed(settings, container, folder, around.s3)
    return ObjectsSource(settings, container, around.ledger, feed, cores=cores)


def _open_sql(settings: SqlSourceSettings, folder: Path, cores: int, around: SourceContext) -> Source:
    from headwater.sources.sql.source import SqlSource

    url = settings.url.reveal()
    scheme, separator, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        from headwater.sources.sql.postgres.database import PostgresDatabase

        return SqlSource(settings, PostgresDatabase(settings, around.sql), cores, around.sql)
    if scheme == "sqlite":
        from headwater.sources.sql.sqlite.database import SqliteDatabase

        if not rest.startswith("/") or rest == "/":
            raise InputError(
                "url: a SQLite address names a file", hint="write sqlite:///shop.db, or sqlite:////full/path/shop.db"
            )
        return SqlSource(settings, SqliteDatabase(settings, str(folder / rest[1:])), cores, around.sql)
    from headwater.sources.sql.jdbc.vendors import is_jdbc

    if is_jdbc(url):
        from headwater.sources.sql.jdbc.database import JdbcDatabase

        if around.spark is None:
            raise InputError(
                "url: a database behind a JDBC driver is read in a Spark session",
                hint="pass one: open_source(…, spark=session)",
            )
        return SqlSource(settings, JdbcDatabase(settings, folder, around.spark), cores, around.sql)
    database = scheme if separator else "what is written"
    raise InputError(
        f"url: {database} is no kind of database that can be read",
        hint="write postgresql://…, sqlite:///…, mysql://…, mariadb://…, mssql://…, oracle://… or jdbc:…",
    )
