"""Raw rows of one layout as typed change rows; what their types have no place for is set aside (G8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.changes import MISSING, change_fields
from headwater.model.lsn import lsn_text
from headwater.model.rejects import Reject
from headwater.sources.debezium.keys import as_json
from headwater.sources.debezium.positions import packed
from headwater.sources.postgres.log.change_rows import ChangedRows, changed_rows
from headwater.sources.postgres.log.layout import Layout
from headwater.sources.postgres.log.raw_rows import RawRows
from headwater.sources.postgres.log.segment import segment_schema
from headwater.sources.postgres.log.tuples import UNCHANGED
from headwater.sources.postgres.log.values import typed
from headwater.sources.sql.copy_binary import Numbers

_MOMENT = pa.timestamp("us", "UTC")
_LISTS = next(field.type for field in change_fields() if field.name == MISSING)
_WHOLE = ("int32", "int64")
_NO_KEY = "the change does not tell"


@dataclass(frozen=True)
class Decoder:
    """For the rows of one layout; `era` is added to places in the log."""

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
        for name, kind, texts in zip(self._names, self.kinds, rows.texts, strict=True):
            found = typed(texts, kind)
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
        """Column → in which rows it is not told, because it did not change."""
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
            made = pa.array([as_json(key, place) for place in range(len(rows.moved))], pa.string())
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
    """Two rows of one message share its position: the delete of a former key is told from the insert by this."""
    found = np.zeros(len(rows.ops), np.int64)
    found[rows.moved - 1] = 1
    return pa.array(found)


def _whole_numbers(key: Sequence[pa.Array]) -> pa.Array:
    """JSON arrays of whole numbers, which JSON writes as everybody does; NULL where one is."""
    texts = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in key), ",")
    return pc.binary_join_element_wise("[", texts, "]", "")


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
