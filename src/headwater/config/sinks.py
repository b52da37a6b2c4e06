"""Settings of the sinks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from headwater.config.frozen import OneKind, Settings


class IcebergSink(Settings):
    """Land rows in an Iceberg table."""

    table: str = Field(examples=["lake.cms.content"])
    """`lake.namespace.name`; `{stream}`, `{schema}` and `{table}` stand for the parts of the stream's name."""
    mode: Literal["append", "merge", "replace"] = "append"
    """append: add every row read. merge: one row per key, the newest read wins. replace: the window is the table."""
    key: list[str] | None = None
    """The columns that name a row; by default the source's primary key. Needed for merge."""
    partition_by: list[str] = []
    """Iceberg transforms: `day(updated_at)`, `bucket(16, id)`, `country`."""
    properties: dict[str, str] = {}
    """Table properties, set when the table is created."""
    upsert: Literal["auto", "append", "delete-append", "merge"] = "auto"
    """How a merge is carried out; auto decides per batch."""


class FilesSink(Settings):
    """Land rows as files, one folder per window."""

    path: str = Field(examples=["./landed/{stream}"])
    """A folder or URL; `{stream}` stands for the stream's name."""
    format: Literal["parquet", "json", "csv"] = "parquet"
    """Of the files; json has one object a line, csv a header."""
    publish: Literal["auto", "rename", "manifest"] = "auto"
    """rename: the folder appears whole. manifest: files count once the window's manifest names them."""


class ConsoleSink(Settings):
    """Print rows, for a look at what comes through."""

    limit: int = Field(default=20, ge=0)
    """Rows shown per stream and window."""
    format: Literal["table", "json"] = "table"
    """table: columns for people. json: one object a line."""


class SinkSettings(OneKind):
    """Where rows land: exactly one kind of sink per item."""

    called: ClassVar[str] = "kind of sink"

    console: ConsoleSink | None = None
    """Print rows."""
    files: FilesSink | None = None
    """Write files."""
    iceberg: IcebergSink | None = None
    """Write an Iceberg table."""
