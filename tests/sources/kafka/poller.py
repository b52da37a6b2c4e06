"""A Kafka source driven by hand: plan, read in this process, advance; no Spark, no store. And a producer."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from headwater.config.pipeline import SourceSettings
from headwater.model.position.marks import Mark, mark_from_json
from headwater.model.position.window import Window
from headwater.model.rows import Reject
from headwater.sources.open import open_source


class Poller:
    """Keeps the mark as a store would: as JSON."""

    def __init__(self, brokers: str, topics: str | list[str], *, folder: Path = Path(), **settings: object) -> None:
        options = {"brokers": brokers, "topics": topics, "format": "text", "timeout": "20s", **settings}
        if "schema" in settings or "avro_schema" in settings:
            options["format"] = settings.get("format", "json")
        self.settings, self.folder = SourceSettings.model_validate({"kafka": options}), folder
        self.source = open_source(self.settings, folder, 2)
        self.mark: Mark | None = None
        self.rejects: list[Reject] = []

    def look(self) -> Window | None:
        return self.source.plan(self.mark).window

    def poll(self) -> list[dict]:
        """The rows of one cycle over all topics."""
        return [row for table in self.poll_streams().values() for row in table.to_pylist()]

    def values(self) -> list:
        return [row["value"] for row in self.poll()]

    def poll_streams(self) -> dict[str, pa.Table]:
        window = self.look()
        if window is None:
            return {}
        tables = self.read(window)
        assert self.mark is None or window.end.covers(self.mark)
        self.mark = mark_from_json(window.end.to_json())
        return tables

    def read(self, window: Window) -> dict[str, pa.Table]:
        with self.source.read(Window.from_json(window.to_json())) as streams:
            return {rows.stream: self.table(rows) for rows in streams}

    def table(self, rows) -> pa.Table:
        splits = [pickle.loads(pickle.dumps(split)) for split in rows.splits]  # noqa: S301 - as Spark does
        batches = [batch for split in splits for batch in split.read(self.rejects.append)]
        return pa.Table.from_batches(batches, schema=rows.schema)

    def again(self, **settings: object) -> Poller:
        """A fresh source at the same mark, as another process would have."""
        kafka = self.settings.kafka
        assert kafka
        other = Poller(**{**kafka.model_dump(exclude_unset=True), **settings})  # type: ignore[arg-type]
        other.mark = self.mark
        return other

    def offsets(self) -> Mapping[str, Mapping[int, int]]:
        return self.mark.topics  # type: ignore[union-attr]


def send(
    brokers: str,
    topic: str,
    values: Iterable[bytes | str | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: list | None = None,
    timestamp: int = 0,
) -> None:
    """Return when every message is in the log."""
    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, "linger.ms": 5})
    for value in values:
        more = {"timestamp": timestamp} if timestamp else {}
        producer.produce(topic, value, key, partition=partition, headers=headers or [], **more)
    assert producer.flush(30) == 0


def numbers(begin: int, end: int) -> list[bytes]:
    return [str(number).encode() for number in range(begin, end)]


def texts(begin: int, end: int) -> list[str]:
    return [str(number) for number in range(begin, end)]
