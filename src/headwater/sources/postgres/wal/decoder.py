"""Raw rows of one layout, decoded as typed change rows; rows with values that their types cannot hold become rejects (G8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import RunError
from headwater.model.position.lsn import lsn_text
from headwater.model.rows import MISSING, Reject, change_fields
from headwater.pg.copy.binary import PADDING, Numbers
from headwater.sources.debezium.change_batch import key_as_json
from headwater.sources.debezium.positions import packed
from headwater.sources.postgres.catalog import Layout
from headwater.sources.postgres.wal import messages as wire
from headwater.sources.postgres.wal.messages import TEXT, UNCHANGED, Cells, texts, tuples_at, typed
from headwater.sources.postgres.wal.segment import segment_schema
from headwater.sources.postgres.wal.transactions import MessagePositions

_OVERHEAD = 2_000  # bytes of the arrays' own


@dataclass(frozen=True)
class RawRows:
    """Whole messages, and the LSN of each."""

    data: Numbers  # with PADDING bytes behind the last message
    starts: Numbers
    ends: Numbers
    lsns: Numbers
    numbers: Numbers
    times: Numbers
    transactions: Numbers

    @property
    def size(self) -> int:
        return len(self.data) + 48 * len(self.starts) + _OVERHEAD


def copy_rows(positions: MessagePositions, indices: Numbers) -> RawRows:
    """Copies of these messages: the next chunk overwrites their bytes."""
    messages = positions.messages
    starts, ends = messages.starts[indices], messages.ends[indices]
    cells = Cells(starts, ends, np.full(len(indices), TEXT, np.uint8))
    _, offsets, data = texts(pa.py_buffer(messages.data), cells).buffers()
    edges = np.frombuffer(offsets, np.int32, len(indices) + 1).astype(np.int64)
    return RawRows(
        np.frombuffer(data, np.uint8),
        edges[:-1],
        edges[1:],
        positions.lsns[indices],
        positions.numbers[indices],
        positions.times[indices],
        positions.transactions[indices],
    )


def concat_rows(chunks: Sequence[RawRows]) -> RawRows:
    data = np.concatenate([*(chunk.data for chunk in chunks), np.zeros(PADDING, np.uint8)])
    bases = np.concatenate([[0], np.cumsum([len(chunk.data) for chunk in chunks])])[:-1]

    def shift(name: str) -> Numbers:
        return np.concatenate([getattr(chunk, name) + base for chunk, base in zip(chunks, bases, strict=True)])

    def all_of(name: str) -> Numbers:
        return np.concatenate([getattr(chunk, name) for chunk in chunks])

    return RawRows(
        data,
        shift("starts"),
        shift("ends"),
        all_of("lsns"),
        all_of("numbers"),
        all_of("times"),
        all_of("transactions"),
    )


_MOMENT = pa.timestamp("us", "UTC")
_LISTS = next(field.type for field in change_fields() if field.name == MISSING)
_INTEGERS = ("int32", "int64")
_NO_KEY = "the change lacks"


@dataclass(frozen=True)
class Decoder:
    """For the rows of one layout; `era` is added to LSNs."""

    stream: str
    layout: Layout
    column_types: tuple[str, ...]
    key: tuple[str, ...]
    era: int

    def decode(self, raw: RawRows) -> tuple[pa.RecordBatch, list[Reject]]:
        rows = changed_rows(raw, self.layout, self.key)
        reasons: dict[int, list[str]] = {}
        columns = self._typed(rows, reasons)
        self._check_keys(columns, reasons)
        unchanged = self._unchanged(rows)
        old_keys = self._old_keys(columns, rows, unchanged, reasons)
        change_columns = self._change_columns(raw, rows)
        missing = _lists(unchanged, self._names, len(rows.ops))
        arrays = [*columns, *change_columns, missing, old_keys, _row_numbers(rows)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=segment_schema(self.layout, self.column_types))
        if not reasons:
            return batch, []
        mask = np.ones(batch.num_rows, np.bool_)
        mask[list(reasons)] = False
        rejects = [self._reject(raw, rows, row, "; ".join(faults)) for row, faults in sorted(reasons.items())]
        return batch.filter(pa.array(mask)), rejects

    def truncate(self, lsn: int, number: int, time: int, transaction: int) -> pa.RecordBatch:
        """One row, without a key."""
        schema = segment_schema(self.layout, self.column_types)
        arrays = [pa.nulls(1, field.type) for field in schema]
        values = [
            pa.array(["t"]),
            _positions(np.array([lsn]) + self.era, np.array([number])),
            pa.array([time], _MOMENT),
            pa.array([str(transaction)]),
        ]
        count = len(self.column_types)
        arrays[count : count + len(values)] = values
        arrays[-1] = pa.array([0], pa.int64())
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.layout.columns]

    @property
    def _key_numbers(self) -> list[int]:
        names = self._names
        return [names.index(name) for name in self.key if name in names]

    def _typed(self, rows: ChangedRows, reasons: dict[int, list[str]]) -> list[pa.Array]:
        arrays = []
        for name, column_type, column_texts in zip(self._names, self.column_types, rows.texts, strict=True):
            values = typed(column_texts, column_type)
            arrays.append(values.array)
            for row, what in values.misfits.items():
                reasons.setdefault(row, []).append(f"column {name} ({column_type}): {what}")
        return arrays

    def _check_keys(self, columns: Sequence[pa.Array], reasons: dict[int, list[str]]) -> None:
        """Reject changes without a key: no row of a table belongs to them."""
        for number in self._key_numbers:
            if columns[number].null_count:
                for row in pc.indices_nonzero(columns[number].is_null()).to_pylist():
                    reasons.setdefault(row, [f"{_NO_KEY} {self._names[number]}, which is of the key"])

    def _unchanged(self, rows: ChangedRows) -> dict[int, Numbers]:
        """Column → the rows in which the server does not send it, because it did not change."""
        masks = {number: column.letters == UNCHANGED for number, column in enumerate(rows.columns)}
        return {number: mask for number, mask in masks.items() if mask.any()}

    def _old_keys(
        self,
        columns: Sequence[pa.Array],
        rows: ChangedRows,
        unchanged: dict[int, Numbers],
        reasons: dict[int, list[str]],
    ) -> pa.Array:
        if not len(rows.moved):
            return pa.nulls(len(rows.ops), pa.string())
        key = [columns[number].take(pa.array(rows.moved - 1)) for number in self._key_numbers]
        if all(self.column_types[number] in _INTEGERS for number in self._key_numbers):
            keys = _integer_keys(key)
        else:
            keys = pa.array([key_as_json(key, index) for index in range(len(rows.moved))], pa.string())
        at = np.full(len(rows.ops), -1)
        at[rows.moved] = np.arange(len(rows.moved))
        for row in [row for row in rows.moved.tolist() if row - 1 in reasons]:
            # A rejected key has no row in the table to take values from.
            at[row] = -1
            if any(mask[row] for mask in unchanged.values()):
                reasons.setdefault(row, []).append(f"the former key: {'; '.join(reasons[row - 1])}")
        return keys.take(pa.array(at, mask=at < 0))

    def _change_columns(self, raw: RawRows, rows: ChangedRows) -> list[pa.Array]:
        """Operation, position, time and transaction."""
        count, sources = len(rows.ops), rows.sources
        edges = pa.py_buffer(np.arange(count + 1, dtype=np.int32))
        ops = pa.Array.from_buffers(pa.string(), count, [None, edges, pa.py_buffer(rows.ops)])
        positions = _positions(raw.lsns[sources] + self.era, raw.numbers[sources])
        times = pa.array(raw.times[sources]).view(_MOMENT)
        distinct, at = np.unique(raw.transactions, return_inverse=True)
        transactions = pa.array(distinct).cast(pa.string()).take(pa.array(at[sources]))
        return [ops, positions, times, transactions]

    def _reject(self, raw: RawRows, rows: ChangedRows, row: int, reason: str) -> Reject:
        source = rows.sources[row]
        unchanged = [number for number, column in enumerate(rows.columns) if column.letters[row] == UNCHANGED]
        values = {
            name: None
            if (value := rows.texts[number][row].as_py()) is None
            else value.decode(errors="backslashreplace")
            for number, name in enumerate(self._names)
            if number not in unchanged
        }
        more = {
            "op": chr(rows.ops[row]),
            "time": int(raw.times[source]),
            "transaction": str(raw.transactions[source]),
            "missing": [self._names[number] for number in unchanged],
        }
        location: dict[str, str | int] = {"lsn": lsn_text(int(raw.lsns[source])), "number": int(raw.numbers[source])}
        return Reject(self.stream, location, reason, json.dumps(values, ensure_ascii=False).encode(), more)


def _positions(lsns: Numbers, numbers: Numbers) -> pa.Array:
    """As `position` of `model/rows.py`, for a slot."""
    return packed(lsns.astype(np.uint64), (4 * numbers + 3).astype(np.uint64))


def _row_numbers(rows: ChangedRows) -> pa.Array:
    """Two rows of one message share its position: this distinguishes the delete of a former key from the insert."""
    numbers = np.zeros(len(rows.ops), np.int64)
    numbers[rows.moved - 1] = 1
    return pa.array(numbers)


def _integer_keys(key: Sequence[pa.Array]) -> pa.Array:
    """JSON arrays of integers, which JSON writes in one way; NULL where one of them is."""
    column_texts = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in key), ",")
    return pc.binary_join_element_wise("[", column_texts, "]", "")


def _lists(unchanged: dict[int, Numbers], names: Sequence[str], count: int) -> pa.Array:
    """The names of unchanged columns, row by row."""
    if not unchanged:
        return pa.nulls(count, _LISTS)
    table = np.stack(list(unchanged.values()), axis=1)
    counts = table.sum(axis=1)
    _, columns = np.nonzero(table)
    values = pa.array([names[number] for number in unchanged]).take(pa.array(columns))
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(_LISTS, count, [validity, pa.py_buffer(edges)], children=[values])


_TAG = 5  # bytes of letter and oid, before the tag of the image that follows: N new, K the former key, O the former row
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
    """In the order of the WAL. Of a delete only the key is filled; without one, everything."""
    names = [column.name for column in layout.columns]
    key_numbers = [names.index(name) for name in key if name in names]
    letters, tags = raw.data[raw.starts], raw.data[raw.starts + _TAG]
    columns, ends = tuples_at(raw.data, raw.starts + _TAG + 1, len(names))
    _check_tags(letters, tags)
    updates = np.flatnonzero((letters == wire.UPDATE) & (tags != _NEW))
    buffer = pa.py_buffer(raw.data)
    former: list[Cells] = []
    moved = np.empty(0, np.int64)
    if len(updates):
        former, columns, ends = _after(raw, updates, columns, ends)
        moved = updates[_changed_keys(buffer, former, [column.take(updates) for column in columns], key_numbers)]
    if not np.array_equal(ends, raw.ends):
        raise RunError(f"the WAL holds rows of another shape than {layout.schema}.{layout.name} has")
    if key_numbers:
        is_identity = {number for number, column in enumerate(layout.columns) if column.in_identity} == set(key_numbers)
        deletes = np.flatnonzero((letters == wire.DELETE) & ((tags == _OLD) | (not is_identity)))
        _clear_others(columns, key_numbers, deletes)
    ops = _OPS[letters]
    sources = np.arange(len(letters))
    if len(moved):
        indices = np.searchsorted(updates, moved)
        columns, sources = _with_deletes(columns, former, key_numbers, moved, indices)
        moved = moved + np.arange(1, len(moved) + 1)
        ops = ops[sources]
        ops[moved], ops[moved - 1] = ord("c"), ord("d")
    return ChangedRows(columns, [texts(buffer, column) for column in columns], ops, sources, moved)


_OPS = np.zeros(256, np.uint8)
_OPS[[wire.INSERT, wire.UPDATE, wire.DELETE]] = np.frombuffer(b"cud", np.uint8)


def _check_tags(letters: Numbers, tags: Numbers) -> None:
    good = np.where(letters == wire.INSERT, tags == _NEW, (tags == _KEY) | (tags == _OLD))
    if not (good | ((letters == wire.UPDATE) & (tags == _NEW))).all():
        raise RunError("the WAL holds a row message of an unknown form")


def _after(
    raw: RawRows, updates: Numbers, columns: list[Cells], ends: Numbers
) -> tuple[list[Cells], list[Cells], Numbers]:
    """The former images of updates that have one, and all rows as they are after their changes."""
    former = [column.take(updates) for column in columns]
    if (raw.data[ends[updates]] != _NEW).any():
        raise RunError("the WAL holds an update without the new row")
    after, ends_after = tuples_at(raw.data, ends[updates] + 1, len(columns))
    for column, before, new in zip(columns, former, after, strict=True):
        new.fill_from(before)
        column.put(updates, new)
    ends = ends.copy()
    ends[updates] = ends_after
    return former, columns, ends


def _changed_keys(buffer: pa.Buffer, former: list[Cells], after: list[Cells], key_numbers: Sequence[int]) -> Numbers:
    """The updates that change the key. A key that the server does not send did not change."""
    changed = np.zeros(len(after[0].letters) if after else 0, np.bool_)
    for column in key_numbers:
        other = pc.not_equal(texts(buffer, former[column]), texts(buffer, after[column]))
        changed |= np.asarray(other.fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003 - Arrow's own
    return np.flatnonzero(changed)


def _clear_others(columns: list[Cells], key_numbers: Sequence[int], rows: Numbers) -> None:
    """Clear the columns outside the key."""
    if not len(rows):
        return
    for number, column in enumerate(columns):
        if number not in key_numbers:
            column.clear(rows)


def _with_deletes(
    columns: list[Cells], former: list[Cells], key_numbers: Sequence[int], moved: Numbers, indices: Numbers
) -> tuple[list[Cells], Numbers]:
    """Each row, and before the moved ones another: the delete of the former key."""
    counts = np.ones(len(columns[0].letters), np.int64)
    counts[moved] = 2
    sources = np.repeat(np.arange(len(counts)), counts)
    deletes = moved + np.arange(len(moved))
    wider = [column.take(sources) for column in columns]
    for number in key_numbers:
        wider[number].put(deletes, former[number].take(indices))
    _clear_others(wider, key_numbers, deletes)
    return wider, sources
