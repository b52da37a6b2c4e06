"""What a cycle hands to a sink: the rows of one stream's window, not yet read; change rows; rejects, and values that their column types cannot hold exactly (G8)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.errors import ValueNotKept
from headwater.model.position.marks import Json
from headwater.model.spark.dataframe import splits_dataframe
from headwater.model.types import Column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

REJECTS_SINK = "rejects"  # the id of the sink that holds them, beside those of the pipeline
# Part of a location: the row has no name of its own; it is the n-th of those alike in its split.
COPY = "copy"
# The part that names the sink which had no form for the row; the other sinks hold it.
SINK = "sink"
BY_SINK = "by_sink"  # in the proof of their landing: how many each sink rejected; the source rejected the rest


@dataclass(frozen=True)
class Reject:
    """One row, or one message, that its stream could not hold."""

    stream: str
    location: Mapping[str, str | int]  # in the source's words: topic, partition, offset · object, line · the row's key
    reason: str
    payload: bytes  # as the source gave it
    more: Mapping[str, Json] = field(default_factory=dict)  # what else a replay needs: key, headers, timestamp
    part: str = ""  # the part of the window (an object's key) that brings no row at all, for this reason
    again: bool = False  # the source brings that part again by itself, in a later window: not kept as a reject

    @property
    def id(self) -> str:
        """The same whenever the same row is read again: a reject found twice is kept once."""
        text = json.dumps([self.stream, dict(self.location)], sort_keys=True).encode()
        return hashlib.sha256(text + b"\0" + self.payload).hexdigest()[:24]

    def to_json(self) -> dict[str, Json]:
        return {
            "stream": self.stream,
            "place": dict(self.location),
            "reason": self.reason,
            "payload": base64.b64encode(self.payload).decode(),
            "more": dict(self.more),
            "part": self.part,
            "again": self.again,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Reject:
        fields = {name: value for name, value in data.items() if name != "place"}
        return cls(**{**fields, "location": data["place"], "payload": base64.b64decode(data["payload"])})


# What a split calls for each reject while it is read; raises TooManyRejects beyond `max_rejects`.
OnReject = Callable[[Reject], None]


class CollectsRejects(Protocol):
    """Where rejects go. Sent to a worker, it brings those of a task back with the task's result."""

    def add(self, split: int, reject: Reject) -> None:
        """Take a reject of that split. Raises TooManyRejects beyond `max_rejects`."""


class Split(Protocol):
    """A small picklable part of a window; the splits of a stream together are exactly its window.

    `repr` never shows a secret (G11).
    """

    @property
    def rows(self) -> int | None:
        """About how many rows it holds, if known."""

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow, every batch in the stream's schema. Runs on an executor, without Spark.

        `on_reject` receives each row that the schema cannot hold exactly; without it such a row raises (G8).
        May be called again: a task can be retried, and a second sink reads again.
        """


@dataclass(frozen=True)
class MemorySplit:
    """Batches in memory, and the rejects that were collected beside them: for the few rows of a replay or a repair."""

    batches: tuple[pa.RecordBatch, ...] = field(repr=False)
    rejects: tuple[Reject, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, table: pa.Table) -> MemorySplit:
        return cls(tuple(table.to_batches()))

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            if on_reject is None:
                raise ValueNotKept(f"{reject.stream}: {dict(reject.location)}: {reject.reason}")
            on_reject(reject)
        yield from self.batches


@dataclass(frozen=True)
class Objects:
    """Rows come in parts, objects; a newer version of an object replaces all rows of the older one."""

    part_column: str  # names the object that a row came from; not among the columns if a transform dropped it
    earlier: tuple[str, ...] = ()  # its values whose earlier rows these replace; an object that is gone brings none
    part_prefix: str = ""  # what its values begin with, before `Reject.part`: a bucket's url before an object's key


@dataclass(frozen=True)
class Changes:
    """Rows are changes. Their schema: the table's columns, CHANGE_COLUMNS, then what the transport knows.

    Of a delete only the key's columns can be trusted, and only they are filled. Columns outside of the key are nullable.
    """

    table_columns: tuple[str, ...]  # the source's table's own; the key's are among them
    event_key: tuple[str, ...] = ()  # identify an event: a topic's partition and the offset. Empty: nothing does
    arrival: str = ""  # the column that says when the event reached its transport; empty: none
    # A copy of a table: reads of one snapshot, no two of one key. Of several windows only the first brings a truncate.
    is_copy: bool = False
    dropped: tuple[str, ...] = ()  # columns that changes need and a transform dropped: they only can be appended


@dataclass(frozen=True)
class Rows:
    """The rows of one stream in one window, not yet read. Events in objects are both `changes` and `objects`."""

    stream: str
    schema: pa.Schema  # the exact types; a field's nullability is true to the source
    key: tuple[str, ...] = ()  # the source's primary key, if it has one: no two rows share it
    order: tuple[str, ...] = ()  # columns that decide which of two rows with one key is later (the cursor)
    # What Arrow reads, by `read_splits`: a sink may land them without Spark's row machinery. None: only Spark can read
    # the rows.
    splits: tuple[Split, ...] | None = None
    # How Spark reads rows without splits (by a JDBC driver, through a transform): lazily, and for each sink the same.
    frame: Callable[[SparkSession], DataFrame] | None = field(default=None, repr=False)
    objects: Objects | None = None
    changes: Changes | None = None
    rejects: CollectsRejects | None = field(default=None, repr=False)  # of the splits; None: a reject raises (G8)

    def read_splits(self) -> Iterator[Iterator[pa.RecordBatch]]:
        """The batches of each split, in this process."""
        return map(self.read_split, range(len(self.splits or ())))

    @property
    def read_split(self) -> Callable[[int], Iterator[pa.RecordBatch]]:
        """Reads the split of that number. Can be sent to a worker."""
        return partial(_read_split, self.splits or (), self.rejects)

    def dataframe(self, spark: SparkSession) -> DataFrame:
        """The rows as a DataFrame, lazily."""
        if self.splits is not None:
            return splits_dataframe(spark, self.schema, len(self.splits), self.read_split)
        if self.frame is None:
            raise RuntimeError(f"{self.stream}: rows have neither splits nor a frame")
        return self.frame(spark)


def _read_split(splits: Sequence[Split], rejects: CollectsRejects | None, number: int) -> Iterator[pa.RecordBatch]:
    return splits[number].read(None if rejects is None else partial(rejects.add, number))


# Every transport (Debezium's events in Kafka or in objects, a replication slot) delivers this shape; sinks know no other.

OP = "_op"
"""c inserted, u updated, d deleted, r read by a snapshot, t truncated: the whole table, the row has no key."""
POSITION = "_position"
"""Where the change stands in the source's log (see `position`). Of two changes of one key the greater wins (G7)."""
SOURCE_TIME = "_source_time"
"""When it happened, by the source's clock: for people; nothing is ordered by it."""
TRANSACTION = "_transaction"
"""The source's transaction, as text, where it says one."""
MISSING = "_missing"
"""Columns whose values the event leaves out because they did not change (TOAST); NULL: none."""
OLD_KEY = "_old_key"
"""Of an insert that is a change of key: the row's former key, a JSON array of its values in the key's order."""

CHANGE_COLUMNS = (OP, POSITION, SOURCE_TIME, TRANSACTION, MISSING, OLD_KEY)

UPSERTS = ("c", "u", "r")
_MINOR = 10**19  # above every 63-bit number, so that two of them fit into 38 digits


def position(major: int, minor: int) -> int:
    """Two numbers of a log as one that orders like the pair; kept in decimal(38, 0).

    | source | major | minor |
    | --- | --- | --- |
    | PostgreSQL by Debezium | commit before (`sequence[0]`; without it the LSN) | 2 × LSN (none: 0) + 1 unless a snapshot's read |
    | PostgreSQL by a slot | commit's LSN; of a copy's rows the snapshot's | 4 × number in the transaction, from 1, + 3; a copy's rows 2, the truncate before them 1 |
    | MySQL by Debezium | number of the log file × 2⁴⁰ + place in it | 2 × number in the transaction (unknown: of the row at that position) + 1 unless a snapshot's read |

    A snapshot's read comes before a change at the same place, since it saw the table as it was before that.
    """
    return major * _MINOR + minor


def change_fields() -> list[pa.Field]:
    """The columns beside a table's own, in their order."""
    import pyarrow as pa

    return [
        pa.field(OP, pa.string(), nullable=False),
        pa.field(POSITION, pa.decimal128(38, 0), nullable=False),
        pa.field(SOURCE_TIME, pa.timestamp("us", "UTC")),
        pa.field(TRANSACTION, pa.string()),
        pa.field(MISSING, pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field(OLD_KEY, pa.string()),
    ]


# A reader yields batches, each with the values that it cannot hold beside it. Single rows are compared only in a batch
# with such values.

RowTexts = Sequence[str | None]  # a row, every value as the database writes it


@dataclass(frozen=True)
class InexactValues:
    """The values of one column that its type cannot hold."""

    position: int  # of the column
    what: str  # is wrong with them, in words that follow "values"
    texts: Mapping[int, str]  # row → the value as the database writes it


@dataclass(frozen=True)
class ExactBatch:
    """Some rows of a split, in exact types."""

    batch: pa.RecordBatch  # in the stream's schema; NULL in place of an inexact value
    inexact: tuple[InexactValues, ...]
    row_texts: Callable[[int], RowTexts]  # the whole row of that number; valid until the next batch is read

    def select(self, wanted: Sequence[bool]) -> ExactBatch:
        """Only these rows."""
        if all(wanted):
            return self
        numbers = [number for number, want in enumerate(wanted) if want]
        positions = {number: position for position, number in enumerate(numbers)}
        inexact = (
            InexactValues(
                values.position,
                values.what,
                {positions[row]: text for row, text in values.texts.items() if row in positions},
            )
            for values in self.inexact
        )
        return ExactBatch(
            self.batch.filter(list(wanted)),
            tuple(values for values in inexact if values.texts),
            lambda position: self.row_texts(numbers[position]),
        )


@runtime_checkable
class ReadsExactBatches(Split, Protocol):
    """A split of a database that reports inexact values."""

    @property
    def identity(self) -> RowIdentity: ...

    def read_exact(self) -> Iterator[ExactBatch]: ...


@dataclass(frozen=True)
class RowIdentity:
    """How rejects identify the rows of a stream."""

    stream: str
    columns: tuple[Column, ...] = field(repr=False)
    key: tuple[str, ...]  # empty: by the cursor's value, and a count where rows are equal
    cursor: str

    def name(self, row: RowTexts) -> str:
        """The values of the key, or of the cursor, as JSON."""
        values = {column.name: _json(column, text) for column, text in zip(self.columns, row, strict=False)}
        return json.dumps({name: values[name] for name in self.key or (self.cursor,)}, ensure_ascii=False)

    def payload(self, row: RowTexts) -> bytes:
        """All of the row, as JSON."""
        names = (column.name for column in self.columns)
        return json.dumps(dict(zip(names, row, strict=False)), ensure_ascii=False).encode()


def _json(column: Column, text: str | None) -> str | int | None:
    is_number = text is not None and column.type in ("int32", "int64") and text.removeprefix("-").isdecimal()
    return int(text) if text is not None and is_number else text


def exact_rows(
    batches: Iterable[ExactBatch], identity: RowIdentity, on_reject: OnReject | None
) -> Iterator[pa.RecordBatch]:
    """The rows whose values are all exact; `on_reject` receives the others, without it they raise ValueNotKept (G8)."""
    return _all_rows(batches, identity) if on_reject is None else _exact_rows(batches, identity, on_reject)


def _all_rows(batches: Iterable[ExactBatch], identity: RowIdentity) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for values in batch.inexact:
            raise inexact_error(identity.stream, identity.columns[values.position], len(values.texts), values.what)
        if batch.batch.num_rows:
            yield batch.batch


def _exact_rows(batches: Iterable[ExactBatch], identity: RowIdentity, on_reject: OnReject) -> Iterator[pa.RecordBatch]:
    copies: Counter[str] = Counter()
    for batch in batches:
        rejects = rejects_of(batch, identity) if batch.inexact else {}
        for reject in rejects.values():
            on_reject(reject if identity.key else _numbered(reject, copies))
        if not rejects:
            yield batch.batch
        elif len(rejects) < batch.batch.num_rows:
            yield batch.select([number not in rejects for number in range(batch.batch.num_rows)]).batch


def _numbered(reject: Reject, copies: Counter[str]) -> Reject:
    """Rows of a table without a key may be equal in all their values, and still be two."""
    copies[reject.id] += 1
    return replace(reject, location={**reject.location, COPY: copies[reject.id]})


def rejects_of(batch: ExactBatch, identity: RowIdentity) -> dict[int, Reject]:
    """By the row's number. An inexact cursor is an error: the mark depends on it."""
    reasons: dict[int, list[str]] = {}
    for values in batch.inexact:
        column = identity.columns[values.position]
        if column.name == identity.cursor:
            raise inexact_error(identity.stream, column, len(values.texts), values.what)
        reason = f"column {column.name} ({column.declared or column.type}): {values.what}"
        for row in values.texts:
            reasons.setdefault(row, []).append(reason)
    rejects = {}
    for number, why in sorted(reasons.items()):
        written = batch.row_texts(number)
        location = {"row": identity.name(written)}
        rejects[number] = Reject(identity.stream, location, "; ".join(why), identity.payload(written))
    return rejects


def inexact_error(stream: str, column: Column, count: int, what: str) -> ValueNotKept:
    """The error for values that a column's type cannot hold."""
    return ValueNotKept(
        f"{stream}: column {column.name} ({column.declared or column.type}) has at least {count} "
        f"value{'s' if count != 1 else ''} {what}; {column.type} cannot hold such values exactly",
        hint=f"read the column as text (as_text: [{column.name}]), or exclude those rows (where: …)",
    )
