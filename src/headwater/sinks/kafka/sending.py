"""The rows of one landing on their way: from this process when the window is small, else from Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.model.rows import Rows, SplitRows
from headwater.sinks.kafka.delivery import Delivered, DeliveryOrder, close, deliver
from headwater.sinks.kafka.failures import Undelivered
from headwater.sinks.kafka.messages import Chunk, MessageMaker
from headwater.sinks.over_rows import run_over_rows
from headwater.sinks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Sending:
    """How one landing's rows are made and sent; goes to the tasks."""

    maker: MessageMaker
    order: DeliveryOrder


@dataclass(frozen=True)
class Sent:
    """What became of all messages of a landing."""

    messages: int
    failures: Sequence[Undelivered]

    @classmethod
    def of(cls, delivered: Delivered) -> Sent:
        return cls(delivered.sent, delivered.failures)

    def to_bytes(self) -> bytes:
        return json.dumps([self.messages, [failure.to_json() for failure in self.failures]]).encode()

    @classmethod
    def gathered(cls, results: Iterable[bytes]) -> Sent:
        parts = [json.loads(result) for result in results]
        failures = [Undelivered(**failure) for _, failed in parts for failure in failed]
        return cls(sum(messages for messages, _ in parts), failures)


def all_chunks(maker: MessageMaker, rows: SplitRows) -> list[Chunk]:
    """Every message of a small window, made before the first is sent: a row that cannot be one leaves no repeats."""
    return list(maker.chunks((batch for split in rows.splits for batch in split.read()), None))


def send_by_tasks(sending: Sending, rows: Rows, spark: Callable[[], SparkSession], tally: Tally) -> Sent:
    """A producer per task; for windows that are not small."""
    doing = f"{rows.stream}: sending to topic {sending.order.topic}"
    return Sent.gathered(run_over_rows(rows, partial(_send_part, sending), spark, doing, tally))


def _send_part(sending: Sending, part: int, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    producer = sending.order.open()
    try:
        chunks = sending.maker.chunks(batches, part)
        yield Sent.of(deliver(producer, sending.order, chunks)).to_bytes()
    finally:
        close(producer)
