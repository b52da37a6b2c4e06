"""From settings to a source."""

from __future__ import annotations

from pathlib import Path

from headwater.config.pipeline import SourceSettings
from headwater.config.sql_source import SqlSource
from headwater.model.errors import InputError
from headwater.model.source import Source


def open_source(settings: SourceSettings, folder: Path, cores: int) -> Source:
    """The source of one pipeline; relative paths are taken from `folder`. Connects when first used."""
    if settings.sql is not None:
        return _open_sql(settings.sql, folder, cores)
    raise InputError("the pipeline has no source", hint="write source: {sql: …}")


def _open_sql(settings: SqlSource, folder: Path, cores: int) -> Source:
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
    shown = scheme if separator else "what is written"
    raise InputError(
        f"url: {shown} is no kind of database that can be read", hint="write postgresql://… or sqlite:///…"
    )
