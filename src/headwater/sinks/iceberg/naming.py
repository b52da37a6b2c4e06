"""Names: which table a stream lands in, and how one landing's files and branches are told from all others."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from headwater.model.errors import InputError


@dataclass(frozen=True)
class TableName:
    """A table in a catalog of the session."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, self.name))

    @property
    def quoted(self) -> str:
        """The name in Spark SQL."""
        return ".".join(quote(part) for part in (self.catalog, *self.namespace, self.name))


def quote(identifier: str) -> str:
    """An identifier in Spark SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def table_for(template: str, stream: str) -> TableName:
    """The table of a stream. What a file name could not hold becomes `_` in the stream's part of the name."""
    schema, _, table = stream.rpartition(".")
    values = {"{stream}": table, "{table}": table, "{schema}": schema or "default"}
    parts = [re.sub(r"\{\w+\}", lambda m: _safe(values[m[0]]), part) for part in template.split(".")]
    return TableName(parts[0], tuple(parts[1:-1]), parts[-1])


def check_apart(template: str, streams: Iterable[str]) -> None:
    """Refuse two streams that would land in one table (G12)."""
    taken: dict[TableName, str] = {}
    for stream in sorted(set(streams)):
        other = taken.setdefault(table_for(template, stream), stream)
        if other != stream:
            raise shared_table(table_for(template, stream), other, stream)


def shared_table(table: TableName, one: str, other: str) -> InputError:
    return InputError(
        f"the streams {one!r} and {other!r} would both land in {table}",
        hint="write {schema}_{table} in the sink's table, so that each stream has its own",
    )


def landing_id(pipeline: str, sink: str, stream: str, window: str) -> str:
    """The same for every try at one landing, and for no other: files that tries leave behind are found by it."""
    return _digest(pipeline, sink, stream, window)[:24]


def branch_prefix(pipeline: str, sink: str, stream: str) -> str:
    """What the names of this pipeline's staging branches in a table begin with."""
    return f"hw_{_digest(pipeline, sink, stream)[:12]}_"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def _safe(part: str) -> str:
    return re.sub(r"\W", "_", part) or "_"
