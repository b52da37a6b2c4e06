"""Which rows differ, from the hashes of both sides: a decision, key by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.verify.digesting import KEY, ROW

_THERE = "headwater there"


@dataclass(frozen=True)
class Differences:
    """The keys of rows that differ, each once: tables of the key's columns and the hash of the key."""

    missing: pa.Table  # the source has the row, the table has none of its key
    different: pa.Table  # the table has other values, or the key twice
    extra: pa.Table  # only the table has a row of the key

    @property
    def count(self) -> int:
        return int(self.missing.num_rows + self.different.num_rows + self.extra.num_rows)

    @property
    def all_keys(self) -> pa.Table:
        return pa.concat_tables([self.missing, self.different, self.extra])


def differences(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Of listed rows (see `Digests.listed`). Where rows of the source share a key, the table may have any one of them."""
    if not key:
        return _of_bags(source, table, key)
    counts = table.group_by(list(KEY)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).select(list(KEY))
    same = table.join(source.select([*KEY, *ROW]), keys=[*KEY, *ROW], join_type="left semi")
    right = same.select(list(KEY)).join(twice, keys=list(KEY), join_type="left anti")
    others = source.join(right, keys=list(KEY), join_type="left anti")
    different = others.join(table.select(list(KEY)), keys=list(KEY), join_type="left semi")
    missing = others.join(table.select(list(KEY)), keys=list(KEY), join_type="left anti")
    extra = table.join(source.select(list(KEY)), keys=list(KEY), join_type="left anti")
    return Differences(*(_keys(some, key) for some in (missing, different, extra)))


def bag_differences(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    """Where every row counts, and counts as often as it is there: a row is missing or too many, never different."""
    return _of_bags(source, table, key)


def _of_bags(source: pa.Table, table: pa.Table, key: Sequence[str]) -> Differences:
    words = [*KEY, *ROW]
    counted = [
        some.group_by(words).aggregate([([], "count_all")]).rename_columns([*words, name])
        for some, name in ((source, "here"), (table, "there"))
    ]
    both = counted[0].join(counted[1], keys=words, join_type="full outer")
    here, there = (pc.fill_null(both.column(name), 0) for name in ("here", "there"))
    fewer, more = (both.filter(test).select(words) for test in (pc.greater(here, there), pc.less(here, there)))
    missing = source.join(fewer, keys=words, join_type="left semi")
    extra = table.join(more, keys=words, join_type="left semi")
    none = source.slice(0, 0)
    return Differences(*(_keys(some, key) for some in (missing, none, extra)))


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row per key."""
    columns = [*key, *KEY]
    first = rows.append_column(_THERE, pa.array(range(rows.num_rows), pa.int64()))
    places = first.group_by(list(KEY)).aggregate([(_THERE, "min")]).column(f"{_THERE}_min")
    return rows.take(places.combine_chunks()).select(columns)
