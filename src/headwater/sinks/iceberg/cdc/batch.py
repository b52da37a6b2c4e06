"""The changes of a window: keys, positions, the last change of each key; and the table's rows that have those keys.

Rows that a later change replaced, and keys of deleted rows, stay in data files until those are rewritten: they show
that a change is late.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.changes.positions import KeyNumbers, OrderedChanges, Positions, concat_positions, order_changes
from headwater.changes.versions import IncompleteChange, MissingValues
from headwater.model.rows import MISSING, OLD_KEY, OP, POSITION
from headwater.sinks.iceberg.catalog.table import PlannedFile
from headwater.sinks.iceberg.cdc.change_files import ChangeFiles, read_staged
from headwater.sinks.iceberg.data_files import ArrowColumn, read_columns, take_rows
from headwater.sinks.iceberg.merge.key_lookup import KeySet, Search, find_in_table, plain
from headwater.sinks.iceberg.merge.table_update import Target
from headwater.sinks.iceberg.partitioning import single_value
from headwater.sinks.rejects import exact_cast

_EXACT = Context(prec=76)  # Python's default rounds to 28 digits


def old_key_values(keys: Sequence[Sequence[Any]], types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Column by column, as `plain` arrays."""
    return [
        plain(pa.array([_value(key[index], column_type) for key in keys], _storage(column_type)))
        for index, column_type in enumerate(types)
    ]


def _storage(data_type: pa.DataType) -> pa.DataType:
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _value(value: Any, data_type: pa.DataType) -> Any:  # noqa: PLR0911 - one line per type is the clearest form
    if isinstance(data_type, pa.BaseExtensionType):
        return uuid.UUID(value).bytes if isinstance(value, str) else value
    if pa.types.is_decimal(data_type):
        return Decimal(str(value)).quantize(Decimal((0, (1,), -data_type.scale)), context=_EXACT)
    if pa.types.is_date(data_type) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(data_type) and isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if pa.types.is_string(data_type):
        return value if isinstance(value, str) else str(value)
    if pa.types.is_binary(data_type):
        return base64.b64decode(value) if isinstance(value, str) else value
    return value


def spark_values(column_type: pa.DataType, values: pa.Array) -> pa.Array:
    """Values as Spark has them: UUIDs as text."""
    if not isinstance(column_type, pa.BaseExtensionType):
        return values
    return pa.array([str(uuid.UUID(bytes=value)) for value in values.to_pylist()], pa.string())


Numbers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RowAddresses:
    """Where each change of the batch is written: the number of its file among the landing's, and its row there."""

    file: Numbers  # staged changes come after all files, as one table
    row: Numbers


class Batch:
    """All changes of one window, numbered: those of the upserts' files, of the deletes' files, then the staged ones."""

    def __init__(self, files: ChangeFiles, key: Sequence[ArrowColumn], position: ArrowColumn) -> None:
        self.files, self.key = files, tuple(key)
        self.locations = [file.location for file in (*files.upserts, *files.deletes)]
        self.staged = read_staged(files.staged)
        heads = [read_columns(location, (*key, position)) for location in self.locations]
        if self.staged is not None:
            heads.append(self._staged_heads(self.staged))
        self._counts = [head.num_rows for head in heads]
        self._heads = heads
        self.positions = concat_positions([Positions.of(head.column(len(key))) for head in heads])

    def __len__(self) -> int:
        return len(self.positions)

    def _staged_heads(self, staged: pa.Table) -> pa.Table:
        columns = [exact_cast(plain(staged.column(column.name)), column.type) for column in self.key]
        return pa.table([*columns, staged.column(POSITION)], names=[f"k{n}" for n in range(len(columns) + 1)])

    @cached_property
    def addresses(self) -> RowAddresses:
        file = np.repeat(np.arange(len(self._counts)), self._counts)
        row = np.concatenate([np.empty(0, np.int64), *(np.arange(count) for count in self._counts)])
        return RowAddresses(file, row)

    @cached_property
    def first_staged(self) -> int:
        return len(self) - (self.staged.num_rows if self.staged is not None else 0)

    @cached_property
    def deletes(self) -> Bools:
        deletes = np.zeros(len(self), np.bool_)
        upserts = sum(file.rows for file in self.files.upserts)
        deletes[upserts : self.first_staged] = True
        if self.staged is not None:
            deletes[self.first_staged :] = np.asarray(pc.equal(plain(self.staged.column(OP)), "d"))
        return deletes

    @cached_property
    def _key_columns(self) -> list[pa.Array]:
        """Of all changes, then the old keys of those that changed it."""
        keys = [pa.concat_arrays([plain(head.column(n)) for head in self._heads]) for n in range(len(self.key))]
        return [pa.concat_arrays([new, old]) for new, old in zip(keys, self._old_keys[1], strict=True)]

    @cached_property
    def _old_keys(self) -> tuple[list[int], list[pa.Array]]:
        """The staged changes that have an old key, and these keys, column by column."""
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
    def order(self) -> OrderedChanges:
        return order_changes(self.numbers, len(self.keys), self.positions)

    def key_values(self, changes: Numbers) -> list[pa.Array]:
        """The keys of these changes, column by column."""
        return [column.take(pa.array(changes)) for column in self._key_columns]

    def keys_numbered(self, numbers: Numbers) -> list[pa.Array]:
        """The keys with these numbers, old ones too."""
        _, first = np.unique(self.keys.of_rows, return_index=True)
        return [column.take(pa.array(first[numbers])) for column in self._key_columns]

    @cached_property
    def incomplete(self) -> dict[int, IncompleteChange]:
        """The staged changes, by their numbers. A delete that marks its row takes all other values from it."""
        if self.staged is None:
            return {}
        value_columns = frozenset(self.staged.schema.names) - {column.name for column in self.key}
        old_keys = dict(zip(self._old_keys[0], self.keys.of_rows[len(self) :].tolist(), strict=True))
        missing = self.staged.column(MISSING).to_pylist()
        return {
            self.first_staged + row: IncompleteChange(
                value_columns if names is None else frozenset(names), old_keys.get(row)
            )
            for row, names in enumerate(missing)
        }

    def missing_values(self) -> MissingValues:
        keys = {change: int(self.numbers[change]) for change in self.incomplete}
        deletes = np.flatnonzero(self.deletes[: self.first_staged]).tolist()
        return MissingValues(self.order, self.positions, keys, self.incomplete, deletes)


@dataclass(frozen=True)
class LocatedRows:
    """Rows of data files."""

    locations: list[str]
    file: Numbers  # which of the locations
    row: Numbers
    key: Numbers  # the number of its key
    positions: Positions


class KeyLookup:
    """Finds keys in one table."""

    def __init__(self, target: Target, key: tuple[ArrowColumn, ...], position: ArrowColumn, stream: str) -> None:
        self._spark, self._table, self._tuning = target.spark, target.table, target.tuning
        self._key, self._position, self._stream = key, position, stream

    def plan_files(self, keys: Sequence[pa.Array]) -> list[PlannedFile]:
        """The files that may hold one of the keys, with the bounds of their positions."""
        if not self._table.rows or not len(keys[0]):
            return []
        within = {name: (single_value(low), single_value(high)) for name, (low, high) in self.bounds(keys).items()}
        planned = self._table.plan_files(within, stats_of=self._position.name)
        return self._search(keys).in_buckets(planned)

    def bounds(self, keys: Sequence[pa.Array]) -> dict[str, tuple[object, object]]:
        """The least and the greatest value of each column of the key that has an order."""
        pairs = zip(self._key, KeySet(keys).bounds(), strict=True)
        return {column.name: pair for column, pair in pairs if pair[0] is not None}

    def all_files(self) -> list[PlannedFile]:
        return self._table.plan_files({}, stats_of=self._position.name) if self._table.rows else []

    def rows(self, planned: Sequence[PlannedFile], keys: Sequence[pa.Array]) -> dict[str, Numbers]:
        """Per file, the rows that have one of the keys."""
        return find_in_table(self._spark, planned, self._search(keys), self._tuning)

    def _search(self, keys: Sequence[pa.Array]) -> Search:
        activity = f"{self._stream}: finding keys in {self._table.name}"
        return Search(self._key, KeySet(keys), partial(KeySet, list(keys)), activity)

    def locate(self, hits: dict[str, Numbers], numbers: KeyNumbers) -> LocatedRows:
        """These rows with their keys and positions."""
        locations = list(hits)
        columns = (*self._key, self._position)
        tables = [take_rows(location, columns, hits[location]) for location in locations]
        keys = [numbers.find([plain(table.column(n)) for n in range(len(self._key))]) for table in tables]
        none = np.empty(0, np.int64)
        return LocatedRows(
            locations,
            np.repeat(np.arange(len(locations)), [len(hits[location]) for location in locations]),
            np.concatenate([none, *(hits[location] for location in locations)]),
            np.concatenate([none, *keys]),
            concat_positions([Positions.of(table.column(len(self._key))) for table in tables]),
        )

    def last_position(self, file: PlannedFile) -> int | None:
        """Of all rows of the file; None: unknown."""
        high = file.bounds.get(self._position.id, (None, None))[1]
        return None if high is None else int.from_bytes(high, "big", signed=True)
