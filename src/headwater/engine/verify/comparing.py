"""One table compared with its stream: sums of all ranges first, then the rows of the ranges that differ."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa

from headwater.engine.parts import Parts
from headwater.engine.reject_tray import RejectTray
from headwater.engine.verify.differences import Differences, bag_differences, differences
from headwater.engine.verify.digesting import KEY, Digests
from headwater.engine.verify.known_rejects import without_rejects
from headwater.engine.verify.ranges import Ranges, has_order, range_count
from headwater.engine.verify.report import Compared
from headwater.model.changes import ChangeRows
from headwater.model.comparing import Comparison, Spans
from headwater.model.errors import RunError
from headwater.model.rows import Rows
from headwater.sinks.iceberg.changes.shapes import CURRENT, DELETED
from headwater.sinks.iceberg.comparing import TableColumns
from headwater.sinks.iceberg.evolution import plan_evolution
from headwater.sinks.iceberg.pinned import PinnedTable
from headwater.sinks.iceberg.sink import IcebergSink, check_key
from headwater.sinks.iceberg.types import arrow_type, iceberg_type
from headwater.sinks.tally import Tally

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


def refusal(sink: IcebergSink, rows: Rows) -> str:
    """Why a sink's tables say nothing about their source; empty: they do."""
    mode, changes = sink.settings.mode, isinstance(rows, ChangeRows)
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

    def __init__(self, parts: Parts, sink: IcebergSink, comparison: Comparison, pinned: PinnedTable) -> None:
        self._parts, self._sink, self._comparison = parts, sink, comparison
        self._tray = RejectTray(_MOST_REJECTS, parts.spark)
        self._tray.begin("verify")
        self._rows = self._seen(comparison.rows)
        self._pinned = pinned.knowing(self._ordered) if self._ordered else pinned

    def compare(self, wanted: Wanted) -> Compared:
        began = time.monotonic()
        size = sum(file.rows for file in self._pinned.files)
        self._tell("comparing", rows=2 * size)
        digests = Digests(self._rows.stream, self._schema, self.key, self._ranges(wanted))
        others = self._others(digests, wanted)
        digests = replace(digests, skipped=others)
        seen = self._everything(digests) if wanted.keys is None else self._of_keys(digests, wanted.keys)
        rejects = [reject for reject in self._tray.found() if reject.stream == self._rows.stream]
        extra = without_rejects(seen.found.extra, self.key, rejects)
        made = Compared(
            sink=self._sink.label,
            stream=self._rows.stream,
            table=str(self._pinned.name),
            snapshot=self._pinned.snapshot,
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
        key = tuple(self._sink.settings.key or self._rows.key)
        if self._is_bag:
            return key if set(key) <= set(self._rows.schema.names) else ()
        check_key(key, self._rows.schema, f"{self._rows.stream} → {self._sink.table_of(self._rows.stream)}")
        return key

    @property
    def _is_bag(self) -> bool:
        return self._sink.settings.mode == "append"

    @cached_property
    def _schema(self) -> pa.Schema:
        """What is compared: the source's columns, in the types that the table has, or will have with its next landing."""
        rows, table = self._rows, self._pinned.table
        names = rows.table_columns if isinstance(rows, ChangeRows) else rows.schema.names
        own = pa.schema([rows.schema.field(name) for name in names])
        evolution = plan_evolution(table.schema, own)
        evolution.check(str(table.name))
        kinds = {column.name: column.type for column in table.schema.columns} | dict(evolution.widen)
        return pa.schema(
            [
                pa.field(
                    one.name, arrow_type(kinds[one.name] if one.name in kinds else iceberg_type(one.type, count(1)))
                )
                for one in own
            ]
        )

    @cached_property
    def _ordered(self) -> str:
        """The one column of the key, if its values have an order that ranges can be made of."""
        key = self._rows.key if not self._sink.settings.key else tuple(self._sink.settings.key)
        one = key[0] if len(key) == 1 and key[0] in self._rows.schema.names else ""
        return one if one and has_order(self._rows.schema.field(one).type) else ""

    def _ranges(self, wanted: Wanted) -> Ranges:
        files = self._pinned.files
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
        found = digests.keys(self._seen(narrowed.others), self._parts.spark, self._tally())
        if len(found) > _MOST_WAITING:
            raise RunError(
                f"{self._rows.stream}: {len(found):,} rows of the source have not been read yet, too many to compare around",
                hint="run the pipeline first: headwater run FILE --once",
            )
        return found

    def _everything(self, digests: Digests) -> _Seen:
        """The source first: what the table has no form for is only known then."""
        sums, unfit = digests.sums(self._rows, self._parts.spark, self._tally())
        digests = replace(digests, skipped=np.sort(np.concatenate([digests.skipped, unfit])))
        table_sums, _ = digests.sums(self._table_rows(), self._parts.spark, self._tally())
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
        source = digests.listed(rows, self._parts.spark, self._tally())
        table = digests.listed(table_rows, self._parts.spark, self._tally())
        return (bag_differences if self._is_bag else differences)(source, table, self.key)

    def _narrowed(self, wanted: Spans | pa.Table | None) -> Comparison:
        """A transform may make other keys of those that the source knows."""
        narrowed = self._comparison.narrowed
        if wanted is None or narrowed is None or self._parts.transform:
            return self._comparison
        return narrowed(wanted)

    def _only_key(self, keys: pa.Table) -> pa.Table:
        return keys.select(list(self.key))

    def _seen(self, rows: Rows) -> Rows:
        """As the sink would be given them."""
        return self._parts.transformed(self._tray.watching(rows))

    def _table_rows(self, within: Sequence[tuple[int, int]] | None = None) -> Rows:
        return self._pinned.rows(self._rows.stream, self._read, within)

    @cached_property
    def _read(self) -> TableColumns:
        settings, visible = self._sink.settings, None
        if isinstance(self._rows, ChangeRows):
            if settings.mode == "history":
                visible = (CURRENT, True)
            elif settings.deletes == "mark":
                visible = (DELETED, False)
        return TableColumns.of(self._pinned.table, self._schema, visible)

    def _tell(self, event: str, **fields: object) -> None:
        self._parts.log.event(self._parts.name, event, table=self._pinned.name, sink=self._sink.label, **fields)

    def _tally(self) -> Tally:
        return Tally(lambda rows: self._parts.log.rows(self._parts.name, rows))


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
