"""One item of an Iceberg sink's `partition_by`, as text and as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CALL = re.compile(r"(?P<name>[A-Za-z]+)\(\s*(?:(?P<width>[^,()]+?)\s*,)?\s*(?P<column>.+?)\s*\)")
_PLAIN = ("identity", "year", "month", "day", "hour")
_WITH_WIDTH = ("bucket", "truncate")
_USAGE = "write a column, or year(c), month(c), day(c), hour(c), bucket(16, c), truncate(10, c)"


@dataclass(frozen=True)
class PartitionField:
    """A column and what is made of its value."""

    column: str
    transform: str  # in Iceberg's spelling: `identity`, `day`, `bucket[16]`

    @property
    def name(self) -> str:
        """The partition field's own name; Iceberg wants one that no column has."""
        kind = self.transform.partition("[")[0]
        return self.column if kind == "identity" else f"{self.column}_{kind}"


def parse_partition_field(text: str) -> PartitionField:
    """`day(updated_at)` → the field. Raises ValueError with what to write instead."""
    text = text.strip()
    call = _CALL.fullmatch(text)
    if call is None:
        if not text:
            raise ValueError(f"an empty partition field; {_USAGE}")
        return PartitionField(text, "identity")
    name, width = call["name"].lower(), call["width"]
    if name in _PLAIN and width is None:
        return PartitionField(call["column"], name)
    if name in _WITH_WIDTH and width is not None and width.isdecimal() and int(width) > 0:
        return PartitionField(call["column"], f"{name}[{int(width)}]")
    raise ValueError(f"{text!r} is no partition field; {_USAGE}")
