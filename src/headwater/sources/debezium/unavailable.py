"""Values that an event leaves out because they did not change: what Debezium writes in their place.

PostgreSQL does not send large values (TOAST) that an update left alone. In a text the placeholder stands as it is; in
bytes as their base64 or hex; in an array of texts it is the one element; an array of numbers holds its letters' codes, one
of UUIDs a UUID made of it; an hstore has it as its one key and value.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Unavailable:
    """The placeholder in all its forms."""

    text: str
    texts: pa.Array = field(init=False)
    numbers: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        data = self.text.encode()
        alone = [self.text, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()]
        alone.append(str(_named_by(data)))
        lists = [json.dumps([one], ensure_ascii=False) for one in alone]
        lists.append(json.dumps(list(data), separators=(",", ":")))
        pair = json.dumps({self.text: self.text}, separators=(",", ":"), ensure_ascii=False)
        object.__setattr__(self, "texts", pa.array([*dict.fromkeys([*alone, *lists, pair])], pa.string()))
        object.__setattr__(self, "numbers", tuple(data))

    def in_array(self, array: pa.Array) -> pa.Array | None:
        """Which values are it; None: values of this type cannot be."""
        kind = array.type
        if pa.types.is_string(kind):
            return pc.is_in(array, value_set=self.texts)
        if pa.types.is_map(kind):
            return pa.array([bool(one) and len(one) == 1 and one[0][0] == self.text for one in array.to_pylist()])
        if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
            return self._alone(array, array.flatten(), 1)
        if pa.types.is_list(kind) and pa.types.is_integer(kind.value_type):
            return self._alone(array, array.flatten(), len(self.numbers))
        return None

    def _alone(self, array: pa.Array, values: pa.Array, length: int) -> pa.Array:
        """Lists of that length that hold nothing else; `values` are those of all lists."""
        lengths = np.asarray(pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        rows = np.flatnonzero(lengths == length)
        begins = (np.cumsum(lengths) - lengths)[rows]
        held = values.take(pa.array((begins[:, None] + np.arange(length)).ravel(), pa.int64()))
        if pa.types.is_string(held.type):
            same = pc.is_in(held, value_set=self.texts).to_numpy(zero_copy_only=False).reshape(-1, length)
        else:
            found = held.fill_null(-1).to_numpy(zero_copy_only=False).reshape(-1, length)
            same = found == np.array(self.numbers)
        made = np.zeros(len(array), np.bool_)
        made[rows] = same.all(axis=1)
        return pa.array(made)


def _named_by(data: bytes) -> uuid.UUID:
    """Java's `UUID.nameUUIDFromBytes`: version 3 without a namespace."""
    return uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3)
