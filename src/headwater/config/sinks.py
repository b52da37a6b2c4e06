"""Settings of the sinks."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.files_sink import FilesSink
from headwater.config.frozen import OneKind, Settings
from headwater.config.kafka_sink import KafkaSink
from headwater.config.partition_field import parse_partition_field

_TABLE_PARTS = 3  # catalog, namespace, name


def check_table_name(table: str) -> str:
    """A table of a catalog, perhaps with placeholders for a stream's name."""
    parts = table.split(".")
    if len(parts) < _TABLE_PARTS or not all(part.strip() for part in parts):
        raise ValueError(
            f"{table!r} is no table of a catalog; write for example lake.shop.orders or lake.shop.{{stream}}"
        )
    unknown = set(re.findall(r"\{([^}]*)\}", table)) - {"stream", "schema", "table"}
    if unknown:
        raise ValueError(f"{{{min(unknown)}}} is not known here; write {{stream}}, {{schema}} or {{table}}")
    if "{" in parts[0]:
        raise ValueError(
            f"the catalog's name is fixed, {parts[0]!r} is not; write for example lake.{{schema}}.{{table}}"
        )
    return table


class IcebergSink(Settings):
    """Land rows in an Iceberg table."""

    table: str = Field(examples=["lake.cms.content"])
    """`lake.namespace.name`. `{schema}` and `{table}` stand for the parts of a stream's name (`sales.orders`),
    `{stream}` for its last part. Two streams never share a table: write `{schema}_{table}` where names repeat."""
    mode: Literal["append", "merge", "replace", "replace_object", "changes", "history"] = "append"
    """append: add every row read. merge: one row per key, the newest read wins. replace: the window is the table. replace_object: an object that is read again replaces the rows it brought before; for the objects source, with url among its metadata. For change capture: changes keeps every event, merge the current state, history every version of every row."""
    deletes: Literal["remove", "mark"] = "remove"
    """For merge of changes: what becomes of rows that the source deleted. mark: they stay, with `_is_deleted` true."""
    key: list[str] | None = Field(default=None, min_length=1)
    """The columns that name a row; by default the source's primary key. Needed for merge."""
    partition_by: list[str] = []
    """Iceberg transforms: `day(updated_at)`, `bucket(16, id)`, `country`. Used when the table is created."""
    properties: dict[str, str] = {}
    """Table properties, set when the table is created."""
    upsert: Literal["auto", "append", "delete-append", "copy-on-write", "merge"] = "auto"
    """How merge, history, changes and replace_object take rows away that come again; auto decides per batch. delete-append: they are marked as deleted. copy-on-write: their files are written anew without them. merge: by Spark's MERGE. `append`, for merge, stops at a key that the table already has."""

    @field_validator("table")
    @classmethod
    def _names_a_table(cls, table: str) -> str:
        return check_table_name(table)

    @field_validator("partition_by")
    @classmethod
    def _partition_fields(cls, fields: list[str]) -> list[str]:
        for field in fields:
            parse_partition_field(field)
        return fields

    @model_validator(mode="after")
    def _fits_together(self) -> IcebergSink:
        if self.mode == "replace_object" and self.upsert == "append":
            raise ValueError("upsert: append promises keys that are new; with mode: replace_object write upsert: auto")
        return self

    @field_validator("key")
    @classmethod
    def _each_once(cls, key: list[str] | None) -> list[str] | None:
        if key and len(set(key)) != len(key):
            raise ValueError(f"a key column is named twice: {', '.join(key)}")
        return key


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
    kafka: KafkaSink | None = None
    """Write to a Kafka topic."""
    iceberg: IcebergSink | None = None
    """Write an Iceberg table."""
