"""Where rows stand in their heap: their ctid, six bytes in COPY's binary format, as one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.model.errors import RunError
from headwater.sources.postgres.copying.statement import Item
from headwater.sources.sql.copy_stream import Chunk

Numbers = np.ndarray[Any, Any]

_FIELD = np.dtype([("length", ">i4"), ("page", ">u4"), ("item", ">u2")])
_LENGTH = 6
_ITEM_BITS, _HEAP_BITS = 16, 48


def places_of(chunk: Chunk) -> Numbers:
    """Of each row, by its last field; they order as page and item do."""
    data = np.frombuffer(chunk.data, np.uint8)
    every = np.ndarray((len(data) - _FIELD.itemsize + 1,), f"V{_FIELD.itemsize}", data.data, strides=(1,))
    found = every[values_end(chunk)].view(_FIELD)
    if not np.all(found["length"] == _LENGTH):
        raise RunError("the server's COPY sent something else where the place of a row stands")
    places: Numbers = found["page"].astype(np.int64) << _ITEM_BITS | found["item"]
    return places


def values_end(chunk: Chunk) -> Numbers:
    """Where the place begins, behind the values of each row."""
    end: Numbers = chunk.ends - _FIELD.itemsize
    return end


def in_order(places: Numbers, behind: Item | None) -> bool:
    """Whether each lies behind the one before. If not, a read that goes on behind the last would lose rows."""
    before = -1 if behind is None else behind[0] << _ITEM_BITS | behind[1]
    return bool(np.all(np.diff(places, prepend=before) > 0))


def item_of(place: int) -> Item:
    return place >> _ITEM_BITS, place & (1 << _ITEM_BITS) - 1


def numbered(places: Numbers, heap: int) -> Numbers:
    """The same among all heaps of a table."""
    found: Numbers = places + (heap << _HEAP_BITS)
    return found
