"""Rebuild of the current state and of history from the changes table.

They are built on a branch, beside what readers see; the differences are shown, and only then the branch is published.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from headwater.engine.journal import Journal
from headwater.engine.landing import begin_attempt
from headwater.engine.pipeline import OpenPipeline
from headwater.model.errors import InputError
from headwater.model.position.marks import Mark, OffsetsMark
from headwater.model.position.window import Window
from headwater.model.protocols.lake import LakeSink, LakeTableInfo, Rebuild
from headwater.model.rows import CHANGE_COLUMNS, POSITION, Changes, Rows
from headwater.model.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE = 2_000_000  # events that are put in order together


@dataclass(frozen=True)
class Rebuilt:
    """What a table would become, against what it is."""

    table: str
    rows: int
    added: int  # rows that only the new one has
    lost: int  # rows that only the present one has

    @property
    def differs(self) -> bool:
        return bool(self.added or self.lost)


def rebuild(pipeline: OpenPipeline, journal: Journal, mark: Mark, agreed: Callable[[Sequence[Rebuilt]], bool]) -> bool:
    """Build, show, and publish if `agreed` says yes; returns its answer. The changes are read up to the mark."""
    spark, branch = pipeline.spark(), f"headwater_rebuild_{uuid.uuid4().hex[:12]}"
    attempt, _ = begin_attempt(pipeline, journal, Window(None, mark))
    targets = list(_targets(pipeline, mark))
    with ExitStack() as branches:
        rebuilds: list[Rebuild] = []
        differences: list[Rebuilt] = []
        for log_sink, sink, stream, ends in targets:
            table_rebuild = branches.enter_context(sink.lake(spark).rebuild(stream, branch))
            log = _log_table(spark, log_sink, stream)
            for number, part in enumerate(_logged_changes(spark, log, table_rebuild.table, stream, ends)):
                window = replace(attempt.window, part=f"{branch}-{number}")
                table_rebuild.sink.land(replace(attempt, window=window), part)
            rebuilds.append(table_rebuild)
            differences.append(_compare(spark, table_rebuild.table, branch))
        if not agreed(differences):
            return False
        for table_rebuild, difference in zip(rebuilds, differences, strict=True):
            if difference.differs:
                table_rebuild.publish(attempt)
        return True


def _targets(pipeline: OpenPipeline, mark: Mark) -> Iterator[tuple[LakeSink, LakeSink, str, Mapping[int, int]]]:
    """Every table that can be rebuilt: the sink of the log, the table's sink, the stream, the offsets of the mark."""
    sinks = [sink for sink in pipeline.sinks() if isinstance(sink, LakeSink)]
    logs = [sink for sink in sinks if sink.mode == "changes"]
    targets = [sink for sink in sinks if sink.mode in {"merge", "history"}]
    if not logs or not targets or not isinstance(mark, OffsetsMark):
        raise InputError(
            f"{pipeline.name}: nothing to rebuild: a rebuild needs a sink with mode: changes, and one with merge or history",
            hint="rewind without --rebuild: the source is read again",
        )
    for stream in sorted(mark.topics):
        yield from ((logs[0], sink, stream, mark.topics[stream]) for sink in targets)


def _log_table(spark: SparkSession, sink: LakeSink, stream: str) -> LakeTableInfo:
    table = sink.lake(spark).table(stream)
    if table is None:
        raise InputError(
            f"there is no {sink.table_name(stream)} to rebuild from", hint="run the pipeline: it creates the table"
        )
    return table


def _compare(spark: SparkSession, table: LakeTableInfo, branch: str) -> Rebuilt:
    name, version = table.quoted, f"{table.quoted} VERSION AS OF '{branch}'"
    comparable = [
        f"`{field.name}`" for field in spark.table(name).schema if "map<" not in field.dataType.simpleString()
    ]
    columns = ", ".join(comparable)

    def count(first: str, second: str) -> int:
        query = f"SELECT {columns} FROM {first} EXCEPT ALL SELECT {columns} FROM {second}"  # noqa: S608 - quoted
        return spark.sql(query).count()

    rows = spark.sql(f"SELECT * FROM {version}").count()  # noqa: S608 - quoted
    return Rebuilt(table.name, rows, added=count(version, name), lost=count(name, version))


def _logged_changes(
    spark: SparkSession, log: LakeTableInfo, table: LakeTableInfo, stream: str, ends: Mapping[int, int]
) -> Iterator[Rows]:
    """The log's events before these offsets, some millions at a time, in the order of their partitions."""
    schema = arrow_schema(spark.table(log.quoted).schema)
    names = tuple(name for name in schema.names if name in table.columns and name not in CHANGE_COLUMNS)
    partition_column, offset_column = (f"`{name}`" for name in log.key)
    parts = max(1, -(-sum(ends.values()) // _AT_ONCE))
    for number in range(parts):
        slices = [
            f"({partition_column} = {partition} AND {offset_column} >= {end * number // parts} "
            f"AND {offset_column} < {end * (number + 1) // parts})"
            for partition, end in ends.items()
        ]
        query = f"SELECT * FROM {log.quoted} WHERE {' OR '.join(slices) or 'false'}"  # noqa: S608 - our own table, numbers
        frame = partial(_query, query)
        yield Rows(stream, schema, table.key, (POSITION,), frame=frame, changes=Changes(names, log.key))


def _query(query: str, spark: SparkSession) -> DataFrame:
    return spark.sql(query)
