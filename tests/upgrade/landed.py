"""What the sinks of a cell hold: rows, and the ids of the windows that they came in, as the sinks' own records say."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from tests.upgrade.cells import Cell, Place, Rows, Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


class Target(Protocol):
    """Where one sink lands one stream."""

    sink: Sink

    def rows(self) -> Rows: ...

    def windows(self) -> Sequence[str]:
        """In the order in which they landed; none where the target does not say."""


def targets(cell: Cell, place: Place, spark: SparkSession | None) -> Mapping[str, Target]:
    """By table, folder or topic. What a console has shown is gone."""
    targets: dict[str, Target] = {}
    for sink in cell.sinks:
        ((kind, settings),) = sink.settings.items()
        for stream in sink.streams:
            if kind == "iceberg":
                table = settings["table"].replace("{stream}", stream)
                targets[table] = Table(sink, place.folder, table, spark)
            elif kind == "files" and settings.get("layout") == "connect":
                targets[settings["path"]] = MessageFiles(sink, place.folder / settings["path"])
            elif kind == "files":
                path = settings["path"]
                path = path.replace("{stream}", stream) if "{stream}" in path else f"{path}/{stream}"
                targets[path] = Files(sink, place.folder / path)
            elif kind == "kafka":
                targets[settings["topic"]] = OutputTopic(sink, place.servers.kafka(), settings["topic"])
    return targets


@dataclass(frozen=True)
class Table:
    """An Iceberg table in the cell's lake."""

    sink: Sink
    folder: Path
    name: str
    spark: SparkSession | None

    def rows(self) -> Rows:
        assert self.spark is not None
        query = f"SELECT {', '.join(self.sink.columns)} FROM {self.name}"
        return Counter(tuple(row) for row in self.spark.sql(query).collect())

    def windows(self) -> Sequence[str]:
        """By the summaries of the snapshots in the table's metadata."""
        _, namespace, name = self.name.split(".")
        with closing(sqlite3.connect(self.folder / "lake" / "catalog.db")) as catalog:
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            ((location,),) = catalog.execute(query, [namespace, name])
        metadata = json.loads(Path(urlsplit(location).path).read_text())
        snapshots = sorted(metadata["snapshots"], key=lambda snapshot: snapshot["sequence-number"])
        return [one["summary"]["headwater.window"] for one in snapshots if "headwater.window" in one["summary"]]


@dataclass(frozen=True)
class Files:
    """A folder of windows, published by rename or by manifest."""

    sink: Sink
    folder: Path

    def rows(self) -> Rows:
        return _chosen((row for record, folder in self._records() for row in _content(record, folder)), self.sink)

    def windows(self) -> Sequence[str]:
        return [record["window"] for record, _ in self._records()]

    def _records(self) -> Sequence[tuple[Row, Path]]:
        """The record of each window, and the folder of its files."""
        renamed = [(json.loads(file.read_text()), file.parent) for file in self.folder.glob("[!.]*/_landing.json")]
        manifests = self.folder.glob("_manifests/[!.]*.json")
        named = [(json.loads(file.read_text()), self.folder / "data") for file in manifests]
        return sorted([*renamed, *named], key=lambda record: record[0]["published_at"])


@dataclass(frozen=True)
class MessageFiles:
    """Messages in files named by their offsets, as Kafka Connect would write them."""

    sink: Sink
    folder: Path

    def rows(self) -> Rows:
        return _chosen((line["value"] for line in _lines(self.folder.rglob("*.json"))), self.sink)

    def windows(self) -> Sequence[str]:
        return []


@dataclass(frozen=True)
class OutputTopic:
    """A topic, as a reader sees it who takes the first message of each position."""

    sink: Sink
    brokers: str
    name: str

    def rows(self) -> Rows:
        first = {headers["headwater.position"]: row for headers, row in reversed(self._messages())}
        return _chosen(first.values(), self.sink)

    def windows(self) -> Sequence[str]:
        return list(dict.fromkeys(headers["headwater.window"] for headers, _ in self._messages()))

    def _messages(self) -> Sequence[tuple[Mapping[str, str], Row]]:
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "reader", "enable.auto.commit": False})
        rows = []
        for partition in sorted(consumer.list_topics(self.name, timeout=10).topics[self.name].partitions):
            first, end = consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=10)
            consumer.assign([TopicPartition(self.name, partition, first)])
            while first < end:
                message = consumer.poll(10)
                assert message is not None, f"{self.name}/{partition} stops at {first} of {end}"
                assert message.error() is None, message.error()
                first = message.offset() + 1
                headers = {name: value.decode() for name, value in message.headers() or ()}
                rows.append((headers, json.loads(message.value())))
        consumer.close()
        return rows


def printed_rows(text: str, sink: Sink) -> Rows:
    """Of the JSON lines among what a process printed."""
    return _chosen((json.loads(line) for line in text.splitlines() if line.startswith("{")), sink)


def _content(record: Row, folder: Path) -> Sequence[Row]:
    files = [folder / part["name"] for part in record["files"]]
    if record["format"] == "json":
        return _lines(files)
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _lines(files: Iterable[Path]) -> Sequence[Row]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _chosen(rows: Iterable[Row], sink: Sink) -> Rows:
    return Counter(tuple(row[name] for name in sink.columns) for row in rows)
