"""One message at a time, where Arrow's parser refused: its columns by their kinds, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.sources.debezium.kinds import Kind, struct_of
from headwater.sources.json.strict import document


class StructRows:
    """An object whose fields are columns."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kind = struct_of(kinds)

    def row(self, value: bytes) -> tuple[Any, ...]:
        """Raises Misfit."""
        found: dict[str, Any] = self._kind.exact(document(value))
        return tuple(found.values())

    def batch(self, rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        fields = list(self._kind.wire)
        columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(fields)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
