"""The column that takes a field's values once their type has changed to one that the first column has no place for."""

from __future__ import annotations

import re

import pyarrow as pa

from headwater.sources.ddl_schema import ddl_of

_SIGNS = re.compile(r"\W+")


def renamed(name: str, kind: pa.DataType) -> str:
    """`amount__string`, `amount__decimal_12_2`."""
    return f"{name}__{_SIGNS.sub('_', ddl_of(kind)).strip('_')}"
