"""Rows taken from a table by their keys, in a landing of its own that adds none: a repair's, for what a source deleted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from headwater.model.errors import PublishConflict, UnknownName
from headwater.model.landing import Landing
from headwater.model.sink import Attempt
from headwater.sinks.iceberg.ancestry import Ancestry, Stamped, already_landed, check_epoch
from headwater.sinks.iceberg.catalog import find_table
from headwater.sinks.iceberg.changes.other_keys import as_text
from headwater.sinks.iceberg.java_errors import HeadMoved, reaching
from headwater.sinks.iceberg.leftovers import stale_branches
from headwater.sinks.iceberg.naming import branch_prefix, quote
from headwater.sinks.iceberg.publish import publish_branch
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.iceberg.spark_merge import merge_on_branch
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.table import LakeTable

_TRIES = 5
_WHY = "rows that the source does not have"


def take_away(sink: IcebergSink, attempt: Attempt, stream: str, keys: pa.Table) -> Landing:
    """Publish the table without these keys. The same guarantees as any landing: recognised, fenced, one snapshot."""
    began, spark = time.monotonic(), attempt.spark()
    name, ancestry = sink.table_of(stream), Ancestry()
    with reaching(name):
        table = find_table(spark, name)
    if table is None:
        raise UnknownName(f"there is no {name}", hint="run the pipeline: it makes the table")
    for _ in range(_TRIES):
        with reaching(name):
            table.refresh()
            landings = ancestry.follow(table)
        done = already_landed(landings, attempt, sink.label, stream)
        if done:
            return done.landing(time.monotonic() - began)
        check_epoch(landings, attempt, name)
        try:
            return _publish(sink, attempt, stream, table, keys).landing(time.monotonic() - began)
        except HeadMoved:
            continue
    raise PublishConflict(
        f"{name}: other writers published {_TRIES} times while we tried",
        hint="try again; run compaction and other writers less often, or one after another",
    )


def _publish(sink: IcebergSink, attempt: Attempt, stream: str, table: LakeTable, keys: pa.Table) -> Stamped:
    prefix = branch_prefix(attempt.pipeline, sink.label, stream)
    with reaching(table.name):
        base, stale = table.head, stale_branches(table, prefix)
    branch = f"{prefix}{uuid.uuid4().hex[:12]}"
    stamp = Stamp.of(attempt, sink.label, stream, rows=0, files=0, upsert="merge", why=_WHY)
    known = pa.table([as_text(keys.schema.field(n).type, keys.column(n)) for n in keys.column_names], keys.column_names)
    statement = partial(delete_statement, key=keys.column_names)
    merge_on_branch(attempt.spark().newSession(), table, statement, stamp=stamp, branch=branch, rows=[], more=[known])
    with reaching(table.name):
        table.refresh()
        stamp = Stamp.read(table.summary_of(branch)) or stamp  # Spark has counted what it took away
    return Stamped(publish_branch(table, attempt, base, branch, drop=stale), stamp)


def delete_statement(target: str, keys: str, *, key: Sequence[str]) -> str:
    """Rows whose key is in the view `keys` go."""
    on = " AND ".join(f"t.{quote(column)} = s.{quote(column)}" for column in key)
    return f"MERGE INTO {target} AS t\nUSING {quote(keys)} AS s\nON {on}\nWHEN MATCHED THEN DELETE"
