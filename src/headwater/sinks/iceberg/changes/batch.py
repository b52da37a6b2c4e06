"""What is known of a window's changes before anything of the table is looked at: keys, positions, which is the last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.filling import Filling, Incomplete
from headwater.changes.keys import KeyNumbers
from headwater.changes.latest import InOrder, in_order
from headwater.changes.positions import Positions, joined
from headwater.model.changes import MISSING, OLD_KEY, OP, POSITION
from headwater.sinks.iceberg.changes.other_keys import old_key_values
from headwater.sinks.iceberg.changes.writing import ChangeFiles, read_staged
from headwater.sinks.iceberg.conform import exact_cast
from headwater.sinks.iceberg.keyscan import KeyColumn, ScanUnit, read_groups
from headwater.sinks.iceberg.keyset import plain

Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Places:
    """Where each change of the batch is written: the number of its file among the landing's, and its row there."""

    file: Numbers  # staged changes come after all files, as one table
    row: Numbers


class Batch:
    """All changes of one window, numbered: those of the upserts' files, of the deletes' files, then the staged ones."""

    def __init__(self, files: ChangeFiles, key: Sequence[KeyColumn], position: KeyColumn) -> None:
        self.files, self.key = files, tuple(key)
        self.locations = [file.location for file in (*files.upserts, *files.deletes)]
        self.staged = read_staged(files.staged)
        parts = [_heads(location, (*key, position)) for location in self.locations]
        if self.staged is not None:
            parts.append(self._staged_heads(self.staged))
        self._counts = [part.num_rows for part in parts]
        self._heads = parts
        self.positions = joined([Positions.of(part.column(len(key))) for part in parts])

    def __len__(self) -> int:
        return len(self.positions)

    def _staged_heads(self, staged: pa.Table) -> pa.Table:
        columns = [exact_cast(plain(staged.column(column.name)), column.type) for column in self.key]
        return pa.table([*columns, staged.column(POSITION)], names=[f"k{n}" for n in range(len(columns) + 1)])

    @cached_property
    def places(self) -> Places:
        file = np.repeat(np.arange(len(self._counts)), self._counts)
        row = np.concatenate([np.empty(0, np.int64), *(np.arange(count) for count in self._counts)])
        return Places(file, row)

    @cached_property
    def first_staged(self) -> int:
        return len(self) - (self.staged.num_rows if self.staged is not None else 0)

    @cached_property
    def deletes(self) -> Bools:
        made = np.zeros(len(self), np.bool_)
        upserts = sum(file.rows for file in self.files.upserts)
        made[upserts : self.first_staged] = True
        if self.staged is not None:
            made[self.first_staged :] = np.asarray(pc.equal(plain(self.staged.column(OP)), "d"))
        return made

    @cached_property
    def _key_columns(self) -> list[pa.Array]:
        """Of all changes, then the former keys of those that changed it."""
        own = [pa.concat_arrays([plain(part.column(n)) for part in self._heads]) for n in range(len(self.key))]
        return [pa.concat_arrays([mine, old]) for mine, old in zip(own, self._old_keys[1], strict=True)]

    @cached_property
    def _old_keys(self) -> tuple[list[int], list[pa.Array]]:
        """The staged changes that have a former key, and these keys, column by column."""
        if self.staged is None:
            return [], [pa.array([], plain(pa.array([], column.type)).type) for column in self.key]
        texts = self.staged.column(OLD_KEY).to_pylist()
        rows = [row for row, text in enumerate(texts) if text is not None]
        return rows, old_key_values([json.loads(texts[row]) for row in rows], [column.type for column in self.key])

    @cached_property
    def keys(self) -> KeyNumbers:
        return KeyNumbers(self._key_columns)

    @property
    def numbers(self) -> Numbers:
        """The number of every change's key."""
        return self.keys.of_rows[: len(self)]

    @cached_property
    def order(self) -> InOrder:
        return in_order(self.numbers, len(self.keys), self.positions)

    def key_values(self, changes: Numbers) -> list[pa.Array]:
        """The keys of these changes, column by column."""
        return [column.take(pa.array(changes)) for column in self._key_columns]

    def keys_numbered(self, numbers: Numbers) -> list[pa.Array]:
        """The keys with these numbers, former ones too."""
        _, first = np.unique(self.keys.of_rows, return_index=True)
        return [column.take(pa.array(first[numbers])) for column in self._key_columns]

    @cached_property
    def incomplete(self) -> dict[int, Incomplete]:
        """The staged changes, by their numbers. A delete that leaves its row marked takes all other values from it."""
        if self.staged is None:
            return {}
        others = frozenset(self.staged.schema.names) - {column.name for column in self.key}
        moved = dict(zip(self._old_keys[0], self.keys.of_rows[len(self) :].tolist(), strict=True))
        missing = self.staged.column(MISSING).to_pylist()
        return {
            self.first_staged + row: Incomplete(others if names is None else frozenset(names), moved.get(row))
            for row, names in enumerate(missing)
        }

    def filling(self) -> Filling:
        keys = {change: int(self.numbers[change]) for change in self.incomplete}
        deletes = np.flatnonzero(self.deletes[: self.first_staged]).tolist()
        return Filling(self.order, self.positions, keys, self.incomplete, deletes)


def _heads(location: str, columns: Sequence[KeyColumn]) -> pa.Table:
    tables: list[Any] = [table for _, table in read_groups(ScanUnit(location), columns, None)]
    return pa.concat_tables(tables).combine_chunks()
