"""Arrays in events that have no schema: kept as their JSON text, and parsed many at once all the same.

A column that was found is a text, and takes any value: an array as JSON. Arrow's parser gives no JSON back, so one such
column would send every event to the closer look. What a column holds is learnt from the first events of a batch; events
that hold something else there are read again, without what was learnt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headwater.sources.debezium.envelope import Group
from headwater.sources.debezium.found_values import read_rows
from headwater.sources.debezium.kinds import Kind, array_of, same, text
from headwater.sources.debezium.shape_rows import Reject, Rows, ShapeRows
from headwater.sources.debezium.transport import Messages

_SAMPLE = 500
_ELEMENTS = {pa.string(): text(), pa.null(): text(), pa.int64(): same(pa.int64()), pa.bool_(): same(pa.bool_())}

Make = Callable[[Mapping[str, Kind]], ShapeRows]


class LearningRows:
    """Rows of events without schemas; `make` makes the reader, for some columns by other kinds."""

    def __init__(self, make: Make) -> None:
        self._make, self._plain = make, make({})
        self._known: dict[str, pa.DataType] = {}
        self._learnt: ShapeRows | None = None
        self._looked = False

    def rows(self, group: Group, messages: Messages, reject: Reject) -> list[Rows]:
        """Of the messages of the group."""
        if not self._looked or self._plain.slow:
            self._look(group.payloads[:_SAMPLE])
        if self._learnt is None:
            return [self._plain.rows(group, messages, reject)]
        left: list[int] = []
        first = self._learnt.rows(group, messages, lambda index, _: left.append(index))
        if not left:
            return [first]
        places = np.searchsorted(group.indices, sorted(left)).tolist()
        rest = Group(sorted(left), [group.payloads[place] for place in places])
        return [first, self._plain.rows(rest, messages, reject)]

    def _look(self, payloads: Sequence[bytes]) -> None:
        self._looked = True
        found = lists_in(payloads)
        if found != self._known:
            self._known = found
            self._learnt = self._make({name: _json(kind) for name, kind in found.items()}) if found else None


def lists_in(payloads: Sequence[bytes]) -> dict[str, pa.DataType]:
    """Fields of rows that hold arrays of texts, of whole numbers or of booleans, and what is in those."""
    return {
        field.name: field.type.value_type
        for field in read_rows(payloads)
        if pa.types.is_list(field.type) and field.type.value_type in _ELEMENTS
    }


def _json(element: pa.DataType) -> Kind:
    """The array's JSON text, as `json_text` would make it."""
    kind = array_of(_ELEMENTS[element])

    def convert(array: pa.Array) -> pa.Array:
        made = [None if one is None else _written(one) for one in array.to_pylist()]
        return pa.array(made, pa.string())

    return Kind(kind.wire, pa.string(), kind.exact, convert)


def _written(values: list[object]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
