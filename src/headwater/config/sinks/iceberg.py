"""Settings of the `iceberg` sink."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.settings import Settings

_TABLE_PARTS = 3  # catalog, namespace, name


def check_table_name(table: str) -> str:
    """A full table name, with or without placeholders for a stream's name."""
    parts = table.split(".")
    if len(parts) < _TABLE_PARTS or not all(part.strip() for part in parts):
        raise ValueError(
            f"{table!r} is not a full table name; write for example lake.shop.orders or lake.shop.{{stream}}"
        )
    unknown = set(re.findall(r"\{([^}]*)\}", table)) - {"stream", "schema", "table"}
    if unknown:
        raise ValueError(f"{{{min(unknown)}}} is unknown; write {{stream}}, {{schema}} or {{table}}")
    if "{" in parts[0]:
        raise ValueError(
            f"the catalog's name is fixed, {parts[0]!r} is not; write for example lake.{{schema}}.{{table}}"
        )
    return table


class IcebergSinkSettings(Settings):
    """Land rows in an Iceberg table."""

    table: str = Field(examples=["lake.cms.content"])
    """`lake.namespace.name`. `{schema}` and `{table}` are replaced by the parts of a stream's name
    (`sales.orders`), `{stream}` by its last part. Two streams never share a table: write `{schema}_{table}` where names repeat."""
    mode: Literal["append", "merge", "replace", "replace_object", "changes", "history"] = "append"
    """append: add every row read. merge: one row per key, the newest read wins. replace: the window is the table. replace_object: a changed object replaces its earlier rows; for the objects source, with url among its metadata. For change capture: changes keeps every event, merge the current state, history every version of every row."""
    deletes: Literal["remove", "mark"] = "remove"
    """For merge of changes: remove rows that the source deleted, or mark them with `_is_deleted`."""
    key: list[str] | None = Field(default=None, min_length=1)
    """The columns that identify a row; by default the source's primary key. Required for merge."""
    partition_by: list[str] = []
    """Iceberg transforms: `day(updated_at)`, `bucket(16, id)`, `country`. Used when the table is created."""
    properties: dict[str, str] = {}
    """Table properties, set when the table is created."""
    upsert: Literal["auto", "append", "delete-append", "copy-on-write", "merge"] = "auto"
    """How merge, history, changes and replace_object remove old rows of a key; auto decides per batch. delete-append: by delete files. copy-on-write: by rewriting their data files. merge: by Spark's MERGE. `append`, for merge, stops at a key that the table already has."""

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
    def _fits_together(self) -> IcebergSinkSettings:
        if self.mode == "replace_object" and self.upsert == "append":
            raise ValueError("upsert: append promises keys that are new; with mode: replace_object write upsert: auto")
        return self

    @field_validator("key")
    @classmethod
    def _each_once(cls, key: list[str] | None) -> list[str] | None:
        if key and len(set(key)) != len(key):
            raise ValueError(f"a key column is named twice: {', '.join(key)}")
        return key


_CALL = re.compile(r"(?P<name>[A-Za-z]+)\(\s*(?:(?P<width>[^,()]+?)\s*,)?\s*(?P<column>.+?)\s*\)")
_PLAIN = ("identity", "year", "month", "day", "hour")
_WITH_WIDTH = ("bucket", "truncate")
_USAGE = "write a column, or year(c), month(c), day(c), hour(c), bucket(16, c), truncate(10, c)"


@dataclass(frozen=True)
class PartitionField:
    """A column and its transform."""

    column: str
    transform: str  # in Iceberg's spelling: `identity`, `day`, `bucket[16]`

    @property
    def name(self) -> str:
        """The partition field's own name; Iceberg wants one that no column has."""
        transform = self.transform.partition("[")[0]
        return self.column if transform == "identity" else f"{self.column}_{transform}"


def parse_partition_field(text: str) -> PartitionField:
    """`day(updated_at)` → the field. Raises ValueError with what to write instead."""
    text = text.strip()
    match = _CALL.fullmatch(text)
    if match is None:
        if not text:
            raise ValueError(f"an empty partition field; {_USAGE}")
        return PartitionField(text, "identity")
    name, width = match["name"].lower(), match["width"]
    if name in _PLAIN and width is None:
        return PartitionField(match["column"], name)
    if name in _WITH_WIDTH and width is not None and width.isdecimal() and int(width) > 0:
        return PartitionField(match["column"], f"{name}[{int(width)}]")
    raise ValueError(f"{text!r} is not a partition field; {_USAGE}")
