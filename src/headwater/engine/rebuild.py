"""Tables of the current state and of history, made anew from the log of changes.

They are built on a branch, beside what readers see; the differences are shown, and only then the branch is published.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.engine.attempting import attempt_at
from headwater.engine.lease import HeldLease
from headwater.engine.parts import Parts
from headwater.model.changes import CHANGE_COLUMNS
from headwater.model.errors import InputError
from headwater.model.marks import Mark, OffsetsMark
from headwater.model.sink import Attempt
from headwater.model.window import Window
from headwater.sinks.iceberg.ancestry import REBUILT
from headwater.sinks.iceberg.catalog import KEY_PROPERTY, find_table
from headwater.sinks.iceberg.publish import publish_branch
from headwater.sinks.iceberg.sink import IcebergSink
from headwater.sinks.iceberg.table import LakeTable

if TYPE_CHECKING:
    import pyarrow as pa
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


def rebuild(parts: Parts, lease: HeldLease, mark: Mark, agreed: Callable[[Sequence[Rebuilt]], bool]) -> bool:
    """Build, show, and publish if `agreed` says yes; gives its answer. The log is read up to the mark."""
    spark, label = parts.spark(), f"headwater_rebuild_{uuid.uuid4().hex[:12]}"
    attempt = attempt_at(parts, lease, label[-12:], Window(None, mark))
    made = [_Rebuilding(spark, log, sink, stream, label) for log, sink, stream in _targets(parts, mark)]
    try:
        found = [one.build(attempt, mark) for one in made]
        if not agreed(found):
            return False
        for one, table in zip(made, found, strict=True):
            if table.differs:
                one.publish(attempt)
        return True
    finally:
        for one in made:
            one.drop()


def _targets(parts: Parts, mark: Mark) -> Iterator[tuple[IcebergSink, IcebergSink, str]]:
    """Every table that can be made anew: the sink of the log, its own sink, the stream."""
    sinks = [sink for sink in parts.sinks() if isinstance(sink, IcebergSink)]
    logs = [sink for sink in sinks if sink.settings.mode == "changes"]
    targets = [sink for sink in sinks if sink.settings.mode in {"merge", "history"}]
    if not logs or not targets or not isinstance(mark, OffsetsMark):
        raise InputError(
            f"{parts.name}: there is nothing to rebuild: that needs a sink with mode: changes, and one with merge or history",
            hint="rewind without --rebuild: the source is read again",
        )
    for stream in sorted(mark.topics):
        yield from ((logs[0], sink, stream) for sink in targets)


class _Rebuilding:
    """One table."""

    def __init__(self, spark: SparkSession, log: IcebergSink, sink: IcebergSink, stream: str, branch: str) -> None:
        self._spark, self._log, self._stream, self._branch = spark, log.table_of(stream), stream, branch
        self._sink, self._name = sink.on_branch(branch), sink.table_of(stream)
        self._base: int | None = None

    def build(self, attempt: Attempt, mark: Mark) -> Rebuilt:
        log, table = find_table(self._spark, self._log), self._begin()
        if log is None:
            raise InputError(f"there is no {self._log} to rebuild from", hint="run the pipeline: it makes the table")
        rows = LoggedChanges.of(self._spark, log, table, self._stream)
        assert isinstance(mark, OffsetsMark)  # noqa: S101 - so it was chosen
        for number, part in enumerate(rows.in_parts(mark.topics[self._stream])):
            window = replace(attempt.window, part=f"{self._branch}-{number}")
            self._sink.land(replace(attempt, window=window), part)
        return self._compared()

    def _begin(self) -> LakeTable:
        """A branch with nothing in it."""
        table = find_table(self._spark, self._name)
        if table is None or table.head is None:
            raise InputError(f"there is no {self._name} to rebuild", hint="run the pipeline: it makes the table")
        self._base = table.head
        table.java.manageSnapshots().createBranch(self._branch, self._base).commit()
        everything = table.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        update = table.java.newDelete().deleteFromRowFilter(everything).toBranch(self._branch)
        update.set(REBUILT, self._branch)
        update.commit()
        return table

    def _compared(self) -> Rebuilt:
        name, branch = self._name.quoted, f"{self._name.quoted} VERSION AS OF '{self._branch}'"
        comparable = [
            f"`{field.name}`" for field in self._spark.table(name).schema if "map<" not in field.dataType.simpleString()
        ]
        columns = ", ".join(comparable)

        def count(first: str, second: str) -> int:
            query = f"SELECT {columns} FROM {first} EXCEPT ALL SELECT {columns} FROM {second}"  # noqa: S608 - quoted
            return self._spark.sql(query).count()

        return Rebuilt(
            str(self._name),
            self._spark.sql(f"SELECT * FROM {branch}").count(),  # noqa: S608 - quoted
            count(branch, name),
            count(name, branch),
        )

    def publish(self, attempt: Attempt) -> None:
        table = find_table(self._spark, self._name)
        assert table is not None  # noqa: S101 - it was built upon
        publish_branch(table, attempt, self._base, self._branch, drop=())

    def drop(self) -> None:
        table = find_table(self._spark, self._name)
        if table is not None and table.metadata.ref(self._branch) is not None:
            table.java.manageSnapshots().removeBranch(self._branch).commit()


@dataclass(frozen=True)
class LoggedChanges:
    """Changes as the log holds them."""

    stream: str
    schema: pa.Schema
    key: tuple[str, ...]
    table_columns: tuple[str, ...]
    log: str
    event_key: tuple[str, ...]  # partition and offset
    where: str = "true"

    @classmethod
    def of(cls, spark: SparkSession, log: LakeTable, table: LakeTable, stream: str) -> LoggedChanges:
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - an idle poll must not import Spark

        schema = to_arrow_schema(spark.table(log.name.quoted).schema)
        own = {column.name for column in table.schema.columns}
        names = tuple(name for name in schema.names if name in own and name not in CHANGE_COLUMNS)
        key, event_key = (tuple(json.loads(one.java.properties().get(KEY_PROPERTY))) for one in (table, log))
        return cls(stream, schema, key, names, log.name.quoted, event_key)

    @property
    def order(self) -> tuple[str, ...]:
        return ("_position",)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        return spark.sql(f"SELECT * FROM {self.log} WHERE {self.where}")  # noqa: S608 - our own table, numbers

    def in_parts(self, ends: Mapping[int, int]) -> Iterator[LoggedChanges]:
        """All events before these offsets, some millions at a time, in the order of their partitions."""
        partition_column, offset_column = (f"`{name}`" for name in self.event_key)
        parts = max(1, -(-sum(ends.values()) // _AT_ONCE))
        for number in range(parts):
            slices = [
                f"({partition_column} = {partition} AND {offset_column} >= {end * number // parts} "
                f"AND {offset_column} < {end * (number + 1) // parts})"
                for partition, end in ends.items()
            ]
            yield replace(self, where=" OR ".join(slices) or "false")
