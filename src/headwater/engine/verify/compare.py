"""Compares one table with its stream: the sums of all ranges first, then the rows of the ranges that differ."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.engine.pipeline import OpenPipeline
from headwater.engine.rejects.collector import RejectAccumulator, RejectCollector
from headwater.engine.verify.digest import (
    KEY,
    Differences,
    Digests,
    Ranges,
    compare_bags,
    compare_keys,
    has_order,
    range_count,
)
from headwater.engine.verify.report import ComparedTable
from headwater.model.errors import RunError
from headwater.model.protocols.lake import FileStats, LakeSink, LakeSnapshot, Range
from headwater.model.protocols.source import Comparison, KeyRanges
from headwater.model.rows import Rows
from headwater.sinks.tasks import RowCounter

if TYPE_CHECKING:
    from headwater.model.rows import Reject

_MAX_UNREAD_KEYS = 5_000_000  # keys of rows that are not compared; every task holds them
_GROUP_ROWS = 4_000_000  # whose hashes are compared in this process together
_MAX_REJECTS = 1_000_000


@dataclass(frozen=True)
class CompareRequest:
    """What to compare, and in how many ranges."""

    ranges: int | None = None  # None: decided by the number of rows
    keys: pa.Table | None = None  # only rows of these keys, with their hashes; None: all


@dataclass(frozen=True)
class _Result:
    """The differences, and what was counted on the way."""

    differences: Differences
    source_rows: int = 0
    table_rows: int = 0
    ranges: int = 0  # that differ
    unfit: int = 0  # source rows that the table's types cannot hold


def refusal(sink: LakeSink, rows: Rows) -> str:
    """Why a sink's tables cannot be compared with their source; empty: they can."""
    mode, changes = sink.mode, rows.changes is not None
    if mode == "merge" or (mode == "history" and changes) or (mode == "append" and not changes):
        return ""
    reasons = {
        "append": "the table holds change events, the source has rows",
        "changes": "the table holds change events, the source has rows",
        "history": "the source delivers rows, not changes, so there is no history to compare with",
        "replace": "the table holds only the rows of its last window",
        "replace_object": "its rows come from objects",
    }
    return f"mode {mode}: {reasons[mode]}"


class TableComparison:
    """A table at a snapshot, and what the source says it holds."""

    def __init__(self, pipeline: OpenPipeline, sink: LakeSink, comparison: Comparison, table: LakeSnapshot) -> None:
        self._pipeline, self._sink, self._comparison, self._table = pipeline, sink, comparison, table
        self._collector = RejectCollector(_MAX_REJECTS, "verify", RejectAccumulator(pipeline.spark))
        self._rows = self._sink_rows(comparison.rows)

    def compare(self, request: CompareRequest) -> ComparedTable:
        began = time.monotonic()
        size = sum(file.rows for file in self._files)
        self._log("comparing", rows=2 * size)
        digests = Digests(self._rows.stream, self._schema, self.key, self._ranges(request))
        uncompared = self._uncompared_keys(digests, request)
        digests = replace(digests, skipped_keys=uncompared)
        result = self._compare_all(digests) if request.keys is None else self._compare_keys(digests, request.keys)
        rejects = self._collector.rejects(self._rows.stream)
        extra = without_rejects(result.differences.extra, self.key, rejects)
        table = ComparedTable(
            sink=self._sink.id,
            stream=self._rows.stream,
            table=self._table.name,
            snapshot=self._table.snapshot,
            key=self.key,
            ranges=digests.ranges.count,
            differing=result.ranges,
            source_rows=result.source_rows,
            table_rows=result.table_rows,
            waiting=len(uncompared),
            rejected=len(rejects) + result.unfit,
            differences=replace(result.differences, extra=extra),
            follows_deletes=self._comparison.follows_deletes,
            is_bag=self._is_bag,
            seconds=time.monotonic() - began,
        )
        self._log("compared", **table.counts, seconds=f"{table.seconds:.2f}")
        return table

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self._sink.key_of(self._rows)

    @property
    def _is_bag(self) -> bool:
        return self._sink.mode == "append"

    @cached_property
    def _schema(self) -> pa.Schema:
        """The source's columns, in the types that the table has, or will have with its next landing."""
        return self._table.schema_for(self._rows)

    @cached_property
    def _range_column(self) -> str:
        """The key's only column, if ranges can be cut by its values; empty: by its hash."""
        column = self.key[0] if len(self.key) == 1 else ""
        return column if column and has_order(self._rows.schema.field(column).type) else ""

    @property
    def _files(self) -> Sequence[FileStats]:
        return self._table.files(self._range_column)

    def _ranges(self, request: CompareRequest) -> Ranges:
        files = self._files
        count = request.ranges or range_count(sum(file.rows for file in files))
        bounds = [(*file.bounds, file.rows) for file in files if file.bounds is not None and file.rows]
        if self._range_column and has_order(self._schema.field(self._range_column).type) and bounds and count > 1:
            return Ranges.by_value(self._range_column, bounds, count)
        return Ranges.by_hash(count)

    def _uncompared_keys(
        self, digests: Digests, request: CompareRequest
    ) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The keys of source rows that no window has read yet."""
        narrowed = self._narrow(None if request.keys is None else self._key_columns(request.keys))
        if narrowed.others is None or not self.key:
            return np.empty(0, np.uint64)
        keys = digests.keys(self._sink_rows(narrowed.others), self._pipeline.spark, self._row_counter())
        if len(keys) > _MAX_UNREAD_KEYS:
            raise RunError(
                f"{self._rows.stream}: no window has read {len(keys):,} rows of the source yet, too many to leave out",
                hint="run the pipeline first: headwater run FILE --once",
            )
        return keys

    def _compare_all(self, digests: Digests) -> _Result:
        """The source first: only its rows show which ones the table's types cannot hold."""
        sums, unfit = digests.sums(self._rows, self._pipeline.spark, self._row_counter())
        digests = replace(digests, skipped_keys=np.sort(np.concatenate([digests.skipped_keys, unfit])))
        table_sums, _ = digests.sums(self._table_rows(), self._pipeline.spark, self._row_counter())
        differing = sums.differing(table_sums)
        weights = (sums.values[0] + table_sums.values[0]).astype(np.int64).tolist()
        differences = [self._compare_ranges(digests, numbers) for numbers in _groups(differing, weights)]
        none = digests.listing.empty_table().select([*self.key, *KEY])
        joined = _concat([Differences(none, none, none), *differences])
        return _Result(joined, sums.rows, table_sums.rows, len(differing), len(unfit))

    def _compare_ranges(self, digests: Digests, numbers: Sequence[int]) -> Differences:
        """The differences in these ranges."""
        selection = np.zeros(digests.ranges.count, np.bool_)
        selection[list(numbers)] = True
        narrow, rows, bounds = digests.narrow(ranges=selection), self._rows, None
        if digests.ranges.column:
            bounds = digests.ranges.bounds(numbers)
            spans = digests.ranges.spans(bounds, digests.schema.field(digests.ranges.column).type)
            rows = self._sink_rows(self._narrow(spans).rows)
        return self._differences(narrow, rows, self._table_rows(bounds))

    def _compare_keys(self, digests: Digests, keys: pa.Table) -> _Result:
        narrow = digests.narrow(keys=np.sort(keys.column(KEY[0]).to_numpy()))
        rows = self._sink_rows(self._narrow(self._key_columns(keys)).rows)
        return _Result(self._differences(narrow, rows, self._table_rows()))

    def _differences(self, digests: Digests, rows: Rows, table_rows: Rows) -> Differences:
        source = digests.list_keys(rows, self._pipeline.spark, self._row_counter())
        table = digests.list_keys(table_rows, self._pipeline.spark, self._row_counter())
        return (compare_bags if self._is_bag else compare_keys)(source, table, self.key)

    def _narrow(self, only: KeyRanges | pa.Table | None) -> Comparison:
        """Only these rows of the source, unless a transform may change their keys."""
        narrow = self._comparison.narrowed
        if only is None or narrow is None or self._pipeline.transform:
            return self._comparison
        return narrow(only)

    def _key_columns(self, keys: pa.Table) -> pa.Table:
        return keys.select(list(self.key))

    def _sink_rows(self, rows: Rows) -> Rows:
        """The rows as a sink receives them."""
        return self._pipeline.transformed(replace(rows, rejects=self._collector))

    def _table_rows(self, within: Sequence[Range] | None = None) -> Rows:
        return self._table.rows(self._rows, self._schema, within, self._range_column)

    def _log(self, event: str, **fields: object) -> None:
        self._pipeline.log.event(self._pipeline.name, event, table=self._table.name, sink=self._sink.id, **fields)

    def _row_counter(self) -> RowCounter:
        return RowCounter(lambda rows: self._pipeline.log.rows(self._pipeline.name, rows))


def _groups(differing: Sequence[int], weights: Sequence[int]) -> Iterator[list[int]]:
    """Ranges to compare together: as many as this process can hold the hashes of."""
    group: list[int] = []
    for number in differing:
        if group and sum(weights[member] for member in group) + weights[number] > _GROUP_ROWS:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _concat(differences: Sequence[Differences]) -> Differences:
    return Differences(
        *(pa.concat_tables([getattr(part, name) for part in differences]) for name in ("missing", "different", "extra"))
    )


def without_rejects(extra: pa.Table, key: Sequence[str], rejects: Sequence[Reject]) -> pa.Table:
    """Extra rows whose keys the source has not rejected either: a reject is missing from the source's side only."""
    if not rejects or not key or not extra.num_rows:
        return extra
    rejected = {
        _key_texts(json.loads(str(reject.location["row"])), key) for reject in rejects if "row" in reject.location
    }
    rows = extra.select(list(key)).to_pylist()
    return extra.filter(pa.array([_key_texts(row, key) not in rejected for row in rows], pa.bool_()))


def _key_texts(values: dict[str, object], key: Sequence[str]) -> tuple[str, ...] | None:
    """A key as a database writes it; None: the reject is not identified by its key."""
    return tuple(_text(values[name]) for name in key) if set(values) == set(key) else None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if not isinstance(value, dt.datetime):
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    seconds, dot, rest = value.replace(tzinfo=None).isoformat(sep=" ").partition(".")
    return seconds + (dot + rest).rstrip("0") + ("+00" if value.tzinfo else "")
