"""One table compared with its stream: sums of all ranges first, then the rows of the ranges that differ."""

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
    bag_differences,
    differences,
    has_order,
    range_count,
)
from headwater.engine.verify.report import Compared
from headwater.model.errors import RunError
from headwater.model.protocols.lake import FileStats, LakeSink, LakeSnapshot, Range
from headwater.model.protocols.source import Comparison, KeyRanges
from headwater.model.rows import Rows
from headwater.sinks.tasks import RowCounter

if TYPE_CHECKING:
    from headwater.model.rows import Reject

_MOST_WAITING = 5_000_000  # keys of rows that are not compared; every task holds them
_ROWS_AT_ONCE = 4_000_000  # whose hashes are compared in this process together
_MOST_REJECTS = 1_000_000


@dataclass(frozen=True)
class Wanted:
    """How a comparison is to be made."""

    ranges: int | None = None  # None: by the number of rows
    keys: pa.Table | None = None  # only rows of these keys, with their hashes; None: all


@dataclass(frozen=True)
class _Seen:
    """What a look brought."""

    found: Differences
    source_rows: int = 0
    table_rows: int = 0
    ranges: int = 0  # that differ
    unfit: int = 0  # rows that the table has no form for


def refusal(sink: LakeSink, rows: Rows) -> str:
    """Why a sink's tables say nothing about their source; empty: they do."""
    mode, changes = sink.mode, rows.changes is not None
    if mode == "merge" or (mode == "history" and changes) or (mode == "append" and not changes):
        return ""
    reasons = {
        "append": "a table that changes are appended to holds events, the source has rows",
        "changes": "a log of changes holds events, the source has rows",
        "history": "these rows are no changes, and have no history",
        "replace": "the table holds the rows of its last window alone",
        "replace_object": "its rows come from objects",
    }
    return f"mode {mode}: {reasons[mode]}"


class TableComparison:
    """A table at a snapshot, and what the source says it holds."""

    def __init__(self, pipeline: OpenPipeline, sink: LakeSink, comparison: Comparison, table: LakeSnapshot) -> None:
        self._pipeline, self._sink, self._comparison, self._table = pipeline, sink, comparison, table
        self._collector = RejectCollector(_MOST_REJECTS, "verify", RejectAccumulator(pipeline.spark))
        self._rows = self._seen(comparison.rows)

    def compare(self, wanted: Wanted) -> Compared:
        began = time.monotonic()
        size = sum(file.rows for file in self._files)
        self._tell("comparing", rows=2 * size)
        digests = Digests(self._rows.stream, self._schema, self.key, self._ranges(wanted))
        others = self._others(digests, wanted)
        digests = replace(digests, skipped=others)
        seen = self._everything(digests) if wanted.keys is None else self._of_keys(digests, wanted.keys)
        rejects = self._collector.rejects(self._rows.stream)
        extra = without_rejects(seen.found.extra, self.key, rejects)
        made = Compared(
            sink=self._sink.id,
            stream=self._rows.stream,
            table=self._table.name,
            snapshot=self._table.snapshot,
            key=self.key,
            ranges=digests.ranges.count,
            differing=seen.ranges,
            source_rows=seen.source_rows,
            table_rows=seen.table_rows,
            waiting=len(others),
            aside=len(rejects) + seen.unfit,
            found=replace(seen.found, extra=extra),
            follows_deletes=self._comparison.follows_deletes,
            is_bag=self._is_bag,
            seconds=time.monotonic() - began,
        )
        self._tell("compared", **made.counts, seconds=f"{made.seconds:.2f}")
        return made

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self._sink.key_of(self._rows)

    @property
    def _is_bag(self) -> bool:
        return self._sink.mode == "append"

    @cached_property
    def _schema(self) -> pa.Schema:
        """What is compared: the source's columns, in the types that the table has, or will have with its next landing."""
        return self._table.schema_for(self._rows)

    @cached_property
    def _ordered(self) -> str:
        """The one column of the key, if its values have an order that ranges can be made of."""
        column = self.key[0] if len(self.key) == 1 else ""
        return column if column and has_order(self._rows.schema.field(column).type) else ""

    @property
    def _files(self) -> Sequence[FileStats]:
        return self._table.files(self._ordered)

    def _ranges(self, wanted: Wanted) -> Ranges:
        files = self._files
        number = wanted.ranges or range_count(sum(file.rows for file in files))
        known = [(*file.bounds, file.rows) for file in files if file.bounds is not None and file.rows]
        if self._ordered and has_order(self._schema.field(self._ordered).type) and known and number > 1:
            return Ranges.by_value(self._ordered, known, number)
        return Ranges.by_hash(number)

    def _others(self, digests: Digests, wanted: Wanted) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """The keys that are not compared."""
        narrowed = self._narrowed(None if wanted.keys is None else self._only_key(wanted.keys))
        if narrowed.others is None or not self.key:
            return np.empty(0, np.uint64)
        found = digests.keys(self._seen(narrowed.others), self._pipeline.spark, self._row_counter())
        if len(found) > _MOST_WAITING:
            raise RunError(
                f"{self._rows.stream}: {len(found):,} rows of the source have not been read yet, too many to compare around",
                hint="run the pipeline first: headwater run FILE --once",
            )
        return found

    def _everything(self, digests: Digests) -> _Seen:
        """The source first: what the table has no form for is only known then."""
        sums, unfit = digests.sums(self._rows, self._pipeline.spark, self._row_counter())
        digests = replace(digests, skipped=np.sort(np.concatenate([digests.skipped, unfit])))
        table_sums, _ = digests.sums(self._table_rows(), self._pipeline.spark, self._row_counter())
        differing = sums.differing(table_sums)
        weights = (sums.values[0] + table_sums.values[0]).astype(np.int64).tolist()
        found = [self._within(digests, some) for some in _groups(differing, weights)]
        none = digests.listing.empty_table().select([*self.key, *KEY])
        together = _joined([Differences(none, none, none), *found])
        return _Seen(together, sums.rows, table_sums.rows, len(differing), len(unfit))

    def _within(self, digests: Digests, numbers: Sequence[int]) -> Differences:
        """What differs in these ranges."""
        chosen = np.zeros(digests.ranges.count, np.bool_)
        chosen[list(numbers)] = True
        only, rows, within = digests.only(ranges=chosen), self._rows, None
        if digests.ranges.column:
            within = digests.ranges.bounds(numbers)
            spans = digests.ranges.spans(within, digests.schema.field(digests.ranges.column).type)
            rows = self._seen(self._narrowed(spans).rows)
        return self._listed(only, rows, self._table_rows(within))

    def _of_keys(self, digests: Digests, keys: pa.Table) -> _Seen:
        only = digests.only(keys=np.sort(keys.column(KEY[0]).to_numpy()))
        rows = self._seen(self._narrowed(self._only_key(keys)).rows)
        return _Seen(self._listed(only, rows, self._table_rows()))

    def _listed(self, digests: Digests, rows: Rows, table_rows: Rows) -> Differences:
        source = digests.listed(rows, self._pipeline.spark, self._row_counter())
        table = digests.listed(table_rows, self._pipeline.spark, self._row_counter())
        return (bag_differences if self._is_bag else differences)(source, table, self.key)

    def _narrowed(self, wanted: KeyRanges | pa.Table | None) -> Comparison:
        """A transform may make other keys of those that the source knows."""
        narrowed = self._comparison.narrowed
        if wanted is None or narrowed is None or self._pipeline.transform:
            return self._comparison
        return narrowed(wanted)

    def _only_key(self, keys: pa.Table) -> pa.Table:
        return keys.select(list(self.key))

    def _seen(self, rows: Rows) -> Rows:
        """As the sink would be given them."""
        return self._pipeline.transformed(replace(rows, rejects=self._collector))

    def _table_rows(self, within: Sequence[Range] | None = None) -> Rows:
        return self._table.rows(self._rows, self._schema, within, self._ordered)

    def _tell(self, event: str, **fields: object) -> None:
        self._pipeline.log.event(self._pipeline.name, event, table=self._table.name, sink=self._sink.id, **fields)

    def _row_counter(self) -> RowCounter:
        return RowCounter(lambda rows: self._pipeline.log.rows(self._pipeline.name, rows))


def _groups(differing: Sequence[int], weights: Sequence[int]) -> Iterator[list[int]]:
    """Ranges to look into together: as many as this process can hold the hashes of."""
    group: list[int] = []
    for number in differing:
        if group and sum(weights[one] for one in group) + weights[number] > _ROWS_AT_ONCE:
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def _joined(found: Sequence[Differences]) -> Differences:
    return Differences(
        *(pa.concat_tables([getattr(one, kind) for one in found]) for kind in ("missing", "different", "extra"))
    )


def without_rejects(extra: pa.Table, key: Sequence[str], rejects: Sequence[Reject]) -> pa.Table:
    """Of rows that only the table seems to have, those of which the source has none."""
    if not rejects or not key or not extra.num_rows:
        return extra
    known = {_name(json.loads(str(one.place["row"])), key) for one in rejects if "row" in one.place}
    rows = extra.select(list(key)).to_pylist()
    return extra.filter(pa.array([_name(row, key) not in known for row in rows], pa.bool_()))


def _name(values: dict[str, object], key: Sequence[str]) -> tuple[str, ...] | None:
    """A key in the words of a database. None: the reject is not known by the key."""
    return tuple(_text(values[name]) for name in key) if set(values) == set(key) else None


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if not isinstance(value, dt.datetime):
        return value.isoformat() if isinstance(value, dt.date) else str(value)
    seconds, dot, rest = value.replace(tzinfo=None).isoformat(sep=" ").partition(".")
    return seconds + (dot + rest).rstrip("0") + ("+00" if value.tzinfo else "")
