"""Raw rows of one layout, gathered as they came and decoded as typed change rows; what their types cannot hold is rejected (G8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import RunError
from headwater.model.lsn import lsn_text
from headwater.model.rows import MISSING, Reject, change_fields
from headwater.pg.copy.binary import PADDING, Numbers
from headwater.sources.debezium.change_batch import key_as_json
from headwater.sources.debezium.positions import packed
from headwater.sources.postgres.catalog import Layout
from headwater.sources.postgres.wal import messages as wire
from headwater.sources.postgres.wal.messages import TEXT, UNCHANGED, Cells, texts, tuples_at, typed
from headwater.sources.postgres.wal.segment import segment_schema
from headwater.sources.postgres.wal.transactions import Placed

_OVERHEAD = 2_000  # bytes that some rows cost beside their own


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


def taken(placed: Placed, indices: Numbers) -> RawRows:
    """Copies of these messages: the bytes that they came in are overwritten by those that follow."""
    messages = placed.messages
    starts, ends = messages.starts[indices], messages.ends[indices]
    cells = Cells(starts, ends, np.full(len(indices), TEXT, np.uint8))
    _, offsets, data = texts(pa.py_buffer(messages.data), cells).buffers()
    edges = np.frombuffer(offsets, np.int32, len(indices) + 1).astype(np.int64)
    return RawRows(
        np.frombuffer(data, np.uint8),
        edges[:-1],
        edges[1:],
        placed.lsns[indices],
        placed.numbers[indices],
        placed.times[indices],
        placed.transactions[indices],
    )


def joined(parts: Sequence[RawRows]) -> RawRows:
    data = np.concatenate([*(part.data for part in parts), np.zeros(PADDING, np.uint8)])
    bases = np.concatenate([[0], np.cumsum([len(part.data) for part in parts])])[:-1]

    def shifted(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) + base for part, base in zip(parts, bases, strict=True)])

    def all_of(name: str) -> Numbers:
        return np.concatenate([getattr(part, name) for part in parts])

    return RawRows(
        data,
        shifted("starts"),
        shifted("ends"),
        all_of("lsns"),
        all_of("numbers"),
        all_of("times"),
        all_of("transactions"),
    )


_MOMENT = pa.timestamp("us", "UTC")
_LISTS = next(field.type for field in change_fields() if field.name == MISSING)
_WHOLE = ("int32", "int64")
_NO_KEY = "the change lacks"


@dataclass(frozen=True)
class Decoder:
    """For the rows of one layout; `era` is added to LSNs."""

    stream: str
    layout: Layout
    kinds: tuple[str, ...]
    key: tuple[str, ...]
    era: int

    def decoded(self, raw: RawRows) -> tuple[pa.RecordBatch, list[Reject]]:
        rows = changed_rows(raw, self.layout, self.key)
        reasons: dict[int, list[str]] = {}
        columns = self._typed(rows, reasons)
        self._check_keys(columns, reasons)
        left_out = self._left_out(rows)
        old_keys = self._old_keys(columns, rows, left_out, reasons)
        beside = self._beside(raw, rows)
        arrays = [*columns, *beside, _lists(left_out, self._names, len(rows.ops)), old_keys, _which_rows(rows)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=segment_schema(self.layout, self.kinds))
        if not reasons:
            return batch, []
        kept = np.ones(batch.num_rows, np.bool_)
        kept[list(reasons)] = False
        rejects = [self._reject(raw, rows, row, "; ".join(why)) for row, why in sorted(reasons.items())]
        return batch.filter(pa.array(kept)), rejects

    def truncated(self, lsn: int, number: int, time: int, transaction: int) -> pa.RecordBatch:
        """One row, without a key."""
        schema = segment_schema(self.layout, self.kinds)
        nulls = [pa.nulls(1, field.type) for field in schema]
        made = [
            pa.array(["t"]),
            _positions(np.array([lsn]) + self.era, np.array([number])),
            pa.array([time], _MOMENT),
            pa.array([str(transaction)]),
        ]
        count = len(self.kinds)
        nulls[count : count + len(made)] = made
        nulls[-1] = pa.array([0], pa.int64())
        return pa.RecordBatch.from_arrays(nulls, schema=schema)

    @property
    def _names(self) -> list[str]:
        return [column.name for column in self.layout.columns]

    @property
    def _keyed(self) -> list[int]:
        names = self._names
        return [names.index(name) for name in self.key if name in names]

    def _typed(self, rows: ChangedRows, reasons: dict[int, list[str]]) -> list[pa.Array]:
        made = []
        for name, kind, column_texts in zip(self._names, self.kinds, rows.texts, strict=True):
            found = typed(column_texts, kind)
            made.append(found.array)
            for row, what in found.unkept.items():
                reasons.setdefault(row, []).append(f"column {name} ({kind}): {what}")
        return made

    def _check_keys(self, columns: Sequence[pa.Array], reasons: dict[int, list[str]]) -> None:
        """A change that does not say which row it is of has no place in a table."""
        for number in self._keyed:
            if columns[number].null_count:
                for row in pc.indices_nonzero(columns[number].is_null()).to_pylist():
                    reasons.setdefault(row, [f"{_NO_KEY} {self._names[number]}, which is of the key"])

    def _left_out(self, rows: ChangedRows) -> dict[int, Numbers]:
        """Column → in which rows it is not sent, because it did not change."""
        masks = {number: column.letters == UNCHANGED for number, column in enumerate(rows.columns)}
        return {number: mask for number, mask in masks.items() if mask.any()}

    def _old_keys(
        self,
        columns: Sequence[pa.Array],
        rows: ChangedRows,
        left_out: dict[int, Numbers],
        reasons: dict[int, list[str]],
    ) -> pa.Array:
        if not len(rows.moved):
            return pa.nulls(len(rows.ops), pa.string())
        key = [columns[number].take(pa.array(rows.moved - 1)) for number in self._keyed]
        if all(self.kinds[number] in _WHOLE for number in self._keyed):
            made = _whole_numbers(key)
        else:
            made = pa.array([key_as_json(key, place) for place in range(len(rows.moved))], pa.string())
        at = np.full(len(rows.ops), -1)
        at[rows.moved] = np.arange(len(rows.moved))
        for row in [row for row in rows.moved.tolist() if row - 1 in reasons]:
            # Under a key that was not kept there is no row that values could be taken from.
            at[row] = -1
            if any(mask[row] for mask in left_out.values()):
                reasons.setdefault(row, []).append(f"the former key: {'; '.join(reasons[row - 1])}")
        return made.take(pa.array(at, mask=at < 0))

    def _beside(self, raw: RawRows, rows: ChangedRows) -> list[pa.Array]:
        """Operation, position, time and transaction."""
        count, sources = len(rows.ops), rows.sources
        edges = pa.py_buffer(np.arange(count + 1, dtype=np.int32))
        ops = pa.Array.from_buffers(pa.string(), count, [None, edges, pa.py_buffer(rows.ops)])
        places = _positions(raw.lsns[sources] + self.era, raw.numbers[sources])
        times = pa.array(raw.times[sources]).view(_MOMENT)
        different, at = np.unique(raw.transactions, return_inverse=True)
        transactions = pa.array(different).cast(pa.string()).take(pa.array(at[sources]))
        return [ops, places, times, transactions]

    def _reject(self, raw: RawRows, rows: ChangedRows, row: int, reason: str) -> Reject:
        source = rows.sources[row]
        untold = [number for number, column in enumerate(rows.columns) if column.letters[row] == UNCHANGED]
        values = {
            name: None if (held := rows.texts[number][row].as_py()) is None else held.decode(errors="backslashreplace")
            for number, name in enumerate(self._names)
            if number not in untold
        }
        more = {
            "op": chr(rows.ops[row]),
            "time": int(raw.times[source]),
            "transaction": str(raw.transactions[source]),
            "missing": [self._names[number] for number in untold],
        }
        place: dict[str, str | int] = {"lsn": lsn_text(int(raw.lsns[source])), "number": int(raw.numbers[source])}
        return Reject(self.stream, place, reason, json.dumps(values, ensure_ascii=False).encode(), more)


def _positions(places: Numbers, numbers: Numbers) -> pa.Array:
    """As `model.changes.position` says for a slot."""
    return packed(places.astype(np.uint64), (4 * numbers + 3).astype(np.uint64))


def _which_rows(rows: ChangedRows) -> pa.Array:
    """Two rows of one message share its position: this distinguishes the delete of a former key from the insert."""
    found = np.zeros(len(rows.ops), np.int64)
    found[rows.moved - 1] = 1
    return pa.array(found)


def _whole_numbers(key: Sequence[pa.Array]) -> pa.Array:
    """JSON arrays of whole numbers, which JSON writes in one way; NULL where one is."""
    column_texts = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in key), ",")
    return pc.binary_join_element_wise("[", column_texts, "]", "")


def _lists(left_out: dict[int, Numbers], names: Sequence[str], count: int) -> pa.Array:
    """The names of columns that are left out, row by row."""
    if not left_out:
        return pa.nulls(count, _LISTS)
    table = np.stack(list(left_out.values()), axis=1)
    counts = table.sum(axis=1)
    _, columns = np.nonzero(table)
    values = pa.array([names[number] for number in left_out]).take(pa.array(columns))
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(_LISTS, count, [validity, pa.py_buffer(edges)], children=[values])


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
    """In the order of the WAL. Of a delete only the key is filled; without one, everything."""
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
        raise RunError(f"the WAL holds rows of another shape than {layout.schema}.{layout.name} has")
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
        raise RunError("the WAL holds a row message of an unknown form")


def _after(
    raw: RawRows, told: Numbers, columns: list[Cells], ends: Numbers
) -> tuple[list[Cells], list[Cells], Numbers]:
    """The former images of updates that tell one, and all rows as they are after their changes."""
    former = [column.take(told) for column in columns]
    if (raw.data[ends[told]] != _NEW).any():
        raise RunError("the WAL holds an update without the new row")
    after, ends_after = tuples_at(raw.data, ends[told] + 1, len(columns))
    for column, before, new in zip(columns, former, after, strict=True):
        new.filled_from(before)
        column.put(told, new)
    ends = ends.copy()
    ends[told] = ends_after
    return former, columns, ends


def _differing(buffer: pa.Buffer, former: list[Cells], after: list[Cells], keyed: Sequence[int]) -> Numbers:
    """Which of these updates change the key. A key that is not sent did not change."""
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
