"""Which field of an event's row goes into which column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.config.debezium import DebeziumSettings
from headwater.sources.ddl_schema import ddl_of
from headwater.sources.debezium.connect_types import kind_of
from headwater.sources.debezium.envelope import Shape
from headwater.sources.debezium.kinds import Kind, fitted, kind_for
from headwater.sources.debezium.renamed import renamed


@dataclass
class Layout:
    """For messages of one shape, and the columns of a stream."""

    kinds: dict[str, Kind] = field(default_factory=dict)  # of the fields that are read
    columns: dict[str, str] = field(default_factory=dict)  # column → field
    homeless: dict[str, str] = field(default_factory=dict)  # field → why no column has a place for its values

    def with_kinds(self, kinds: Mapping[str, Kind]) -> Layout:
        """The same where some of the fields that are texts hold something else."""
        texts = {
            name: kind for name, kind in kinds.items() if name in self.kinds and self.kinds[name].column == kind.column
        }
        return replace(self, kinds={**self.kinds, **texts})


def layout_of(shape: Shape, columns: pa.Schema, settings: DebeziumSettings, *, declared: bool) -> Layout:
    """By what the messages say of themselves, or else by the columns' types and the settings."""
    made = Layout()
    if shape.schema is None:
        made.kinds = {column.name: kind_for(column.type, settings.of_column(column.name)) for column in columns}
        made.columns = {name: name for name in made.kinds}
        return made
    types = dict(zip(columns.names, columns.types, strict=True))
    for name, schema in shape.struct("after").items():
        kind = kind_of(schema)
        for column in (name, renamed(name, kind.column)):
            held = types.get(column)
            given = settings.of_column(column) if declared else None
            found = fitted(kind, held, given) if held is not None else None
            if found is not None:
                made.kinds[name], made.columns[column] = found, name
                break
        else:
            # What nobody asked for is left out; what was not there when the columns were found is never dropped (G8).
            if name in types or not declared:
                made.kinds[name] = kind
                there = f"the column is {ddl_of(types[name])}" if name in types else "there is no such column"
                made.homeless[name] = f"{name}: the event has {ddl_of(kind.column)}, {there}"
    return made
