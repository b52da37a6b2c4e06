"""Values of Avro records on their way to Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain(value: Any, kind: pa.DataType) -> Any:
    """As Arrow takes it: maps as pairs, UUIDs as text."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(name, plain(item, kind.item_type)) for name, item in value.items()]
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: plain(value.get(field.name), field.type) for field in kind}
    return str(value) if pa.types.is_string(kind) else value
