"""Row messages of one layout → change rows, a column at a time; no row is ever an object.

An update that changes the key is two rows, the delete of the former and the insert of the new one. PostgreSQL tells an
old image with every update where the replica identity is FULL, and with a former key otherwise; sometimes it tells the
key though it did not change (when it lies in TOAST). So keys are compared wherever both are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import RunError
from headwater.sources.postgres.log import messages as wire
from headwater.sources.postgres.log.layout import Layout
from headwater.sources.postgres.log.raw_rows import RawRows
from headwater.sources.postgres.log.tuples import Cells, texts, tuples_at
from headwater.sources.sql.copy_binary import Numbers

_TAG = 5  # bytes of letter and oid, before what says whose image follows: N new, K the former key, O the former row
_NEW, _KEY, _OLD = b"NKO"


@dataclass
class ChangedRows:
    """Rows with their values as texts, not typed yet."""

    columns: list[Cells]
    texts: list[pa.Array]
    ops: Numbers  # letters
    sources: Numbers  # row → its message
    moved: Numbers  # the rows that are inserts under a new key; right before each stands the delete of the former


def changed_rows(raw: RawRows, layout: Layout, key: Sequence[str]) -> ChangedRows:
    """In the order of the log. Of a delete only the key is filled; without one, everything."""
    names = [column.name for column in layout.columns]
    keyed = [names.index(name) for name in key if name in names]
    letters, tags = raw.data[raw.starts], raw.data[raw.starts + _TAG]
    columns, ends = tuples_at(raw.data, raw.starts + _TAG + 1, len(names))
    _check_tags(letters, tags)
    told = np.flatnonzero((letters == wire.UPDATE) & (tags != _NEW))
    buffer = pa.py_buffer(raw.data)
    former: list[Cells] = []
    moved = np.empty(0, np.int64)
    if len(told):
        former, columns, ends = _after(raw, told, columns, ends)
        moved = told[_differing(buffer, former, [column.take(told) for column in columns], keyed)]
    if not np.array_equal(ends, raw.ends):
        raise RunError(f"the server's log holds rows of another shape than {layout.schema}.{layout.name} has")
    if keyed:
        named = {number for number, column in enumerate(layout.columns) if column.in_identity} == set(keyed)
        _only(columns, keyed, np.flatnonzero((letters == wire.DELETE) & ((tags == _OLD) | (not named))))
    ops = _OPS[letters]
    sources = np.arange(len(letters))
    if len(moved):
        places = np.searchsorted(told, moved)
        columns, sources = _with_deletes(columns, former, keyed, moved, places)
        moved = moved + np.arange(1, len(moved) + 1)
        ops = ops[sources]
        ops[moved], ops[moved - 1] = ord("c"), ord("d")
    return ChangedRows(columns, [texts(buffer, column) for column in columns], ops, sources, moved)


_OPS = np.zeros(256, np.uint8)
_OPS[[wire.INSERT, wire.UPDATE, wire.DELETE]] = np.frombuffer(b"cud", np.uint8)


def _check_tags(letters: Numbers, tags: Numbers) -> None:
    good = np.where(letters == wire.INSERT, tags == _NEW, (tags == _KEY) | (tags == _OLD))
    if not (good | ((letters == wire.UPDATE) & (tags == _NEW))).all():
        raise RunError("the server's log holds a row message of an unknown form")


def _after(
    raw: RawRows, told: Numbers, columns: list[Cells], ends: Numbers
) -> tuple[list[Cells], list[Cells], Numbers]:
    """The former images of updates that tell one, and all rows as they are after their changes."""
    former = [column.take(told) for column in columns]
    if (raw.data[ends[told]] != _NEW).any():
        raise RunError("the server's log holds an update without the new row")
    after, ends_after = tuples_at(raw.data, ends[told] + 1, len(columns))
    for column, before, new in zip(columns, former, after, strict=True):
        new.filled_from(before)
        column.put(told, new)
    ends = ends.copy()
    ends[told] = ends_after
    return former, columns, ends


def _differing(buffer: pa.Buffer, former: list[Cells], after: list[Cells], keyed: Sequence[int]) -> Numbers:
    """Which of these updates change the key. A key that is not told did not change."""
    found = np.zeros(len(after[0].letters) if after else 0, np.bool_)
    for column in keyed:
        other = pc.not_equal(texts(buffer, former[column]), texts(buffer, after[column]))
        found |= np.asarray(other.fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - Arrow's own
    return np.flatnonzero(found)


def _only(columns: list[Cells], keyed: Sequence[int], rows: Numbers) -> None:
    """Clear what is not of the key."""
    if not len(rows):
        return
    for number, column in enumerate(columns):
        if number not in keyed:
            column.clear(rows)


def _with_deletes(
    columns: list[Cells], former: list[Cells], keyed: Sequence[int], moved: Numbers, places: Numbers
) -> tuple[list[Cells], Numbers]:
    """Each row, and before the moved ones another: the delete of the former key."""
    counts = np.ones(len(columns[0].letters), np.int64)
    counts[moved] = 2
    sources = np.repeat(np.arange(len(counts)), counts)
    deletes = moved + np.arange(len(moved))
    wider = [column.take(sources) for column in columns]
    for number in keyed:
        wider[number].put(deletes, former[number].take(places))
    _only(wider, keyed, deletes)
    return wider, sources
