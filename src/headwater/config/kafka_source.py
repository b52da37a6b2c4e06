"""Settings of the `kafka` source."""

from __future__ import annotations

import datetime as dt
import warnings
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.ddl import parse_ddl
from headwater.config.debezium import DebeziumSettings
from headwater.config.frozen import Duration, SecretText, Settings
from headwater.config.kafka_client import KafkaClient, OptionValue
from headwater.model.changes import CHANGE_COLUMNS

MetadataName = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]

# What the source itself decides: its offsets are kept in the mark, and nothing else may move them.
_DECIDED = {
    "group.id": "write group",
    "enable.auto.commit": "offsets are committed when a window has landed; write group",
    "enable.auto.offset.store": "offsets are kept in the mark",
    "auto.offset.reset": "write start; data that is gone stops the pipeline (G9)",
    "isolation.level": "write isolation",
    "enable.partition.eof": "the source needs it",
}


class SchemaRegistry(Settings):
    """Confluent's schema registry, or one that speaks its API."""

    url: str = Field(examples=["http://localhost:8081"])
    """Its address."""
    username: str | None = None
    """For basic authentication."""
    password: SecretText | None = None
    """For basic authentication."""


# `schema` is what users call it; pydantic keeps a deprecated method of that name.
warnings.filterwarnings("ignore", message='Field name "schema"')


class KafkaSource(KafkaClient):
    """Read topics, each a stream of its own, by one offset per partition."""

    topics: str | list[str] = Field(examples=["[orders]"])
    """A name, a pattern (`orders.*`: `*`, `?` and `[…]` match as in file names) or a list of them. New topics that match are taken up."""
    format: Literal["json", "debezium", "avro", "text", "binary"] = "json"
    """Of the messages' values. json and avro become columns; text and binary one column, `value`; debezium: change events in JSON become rows of their table, see docs/how-to/read-debezium.md."""
    schema: str | None = Field(default=None, examples=["id bigint, amount decimal(12,2), at timestamp"])  # type: ignore[assignment]
    """For json and debezium: the columns as Spark's DDL; fields that it does not name are left out. Without it the columns are found in the messages and kept; see docs/how-to/read-kafka.md."""
    debezium: DebeziumSettings = DebeziumSettings()
    """For debezium: what its events do not say."""
    avro_schema: str | None = None
    """For avro: a file with the schema that columns are made of (.avsc), for messages with and without the header of a registry."""
    avro_header: Literal["auto", "none", "registry"] = "auto"
    """Whether messages begin with the number of their schema, as a registry's serializers write it. auto: with `registry` yes, else what fits."""
    registry: SchemaRegistry | None = None
    """For avro: where the schemas are that messages name by number."""
    start: str | dict[str, dict[int, int]] = "earliest"
    """First run: `earliest`, `latest`, a moment (`2026-03-02T08:00:00Z`), or offsets: `{orders: {0: 100, 1: 150}}`. Partitions and topics that appear later are always read from their first message."""
    metadata: list[MetadataName] | dict[MetadataName, str] = ["partition", "offset", "timestamp"]
    """What becomes a column beside the value: of topic, partition, offset, timestamp, key, headers. A list names them `kafka_partition`, `kafka_offset` …; a mapping gives names: `{offset: position}`. `[]`: none."""
    key_as: Literal["text", "binary"] = "text"
    """How the column `key` holds a message's key; a key that is no text is a reject."""
    tombstones: Literal["row", "skip", "reject"] = "row"
    """Messages without a value: a row of NULLs beside the metadata, nothing, or a reject."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed: messages of transactions are read once they are committed, never when they were aborted."""
    group: str | None = None
    """A consumer group to which positions are committed, last, so that ordinary lag tools see them. Never read from."""
    max_rows: int | None = Field(default=None, gt=0)
    """At most this many offsets per cycle, shared fairly over the partitions. Where columns are found in messages: by default 500,000; for debezium 1,000,000."""
    splits: int | None = Field(default=None, gt=0)
    """Parallel reads per topic, at least one per partition that has something; by default from the number of messages and the cores."""
    timeout: Duration = Field(default="30s", validate_default=True)
    """How long the brokers may be silent before the cycle fails."""
    reader: Literal["auto", "arrow", "spark"] = "auto"
    """arrow: librdkafka in Spark's workers. spark: Spark's own Kafka source, which knows no rejects: a message that does not parse stops the cycle. auto: arrow."""
    spark_options: dict[str, OptionValue] = {}
    """Options of Spark's Kafka source, for `reader: spark`: `{kafka.client.id: headwater}`."""

    @field_validator("topics", mode="after")
    @classmethod
    def _some(cls, topics: str | list[str]) -> str | list[str]:
        if not topics or not all(isinstance(topic, str) and topic.strip() for topic in topics):
            raise ValueError("name a topic, for example topics: [orders]")
        return topics

    @field_validator("schema", mode="after")
    @classmethod
    def _is_ddl(cls, schema: str | None) -> str | None:
        if schema is not None:
            parse_ddl(schema)
        return schema

    @field_validator("start", mode="before")
    @classmethod
    def _is_a_start(cls, start: object) -> object:
        if isinstance(start, dt.datetime | dt.date):
            start = start.isoformat()
        if isinstance(start, str) and start not in ("earliest", "latest"):
            parse_moment(start)
        return start

    @field_validator("start", mode="after")
    @classmethod
    def _from_zero(cls, start: str | dict[str, dict[int, int]]) -> str | dict[str, dict[int, int]]:
        if isinstance(start, dict) and any(n < 0 for part in start.values() for pair in part.items() for n in pair):
            raise ValueError("partitions and offsets are numbers from 0; for others write earliest or latest")
        return start

    @field_validator("options", mode="after")
    @classmethod
    def _left_to_us(cls, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        for name, instead in _DECIDED.items():
            if name in options:
                raise ValueError(f"{name} cannot be set: {instead}")
        return options

    @model_validator(mode="after")
    def _goes_together(self) -> KafkaSource:
        if self.schema is not None and self.format not in ("json", "debezium"):
            raise ValueError(f"schema belongs to format: json and debezium; {self.format} has {_shape(self.format)}")
        if self.format != "debezium" and "debezium" in self.model_fields_set:
            raise ValueError("debezium: … belongs to format: debezium")
        if self.format == "avro" and self.avro_schema is None:
            raise ValueError("format: avro needs avro_schema, the file with the schema that columns are made of")
        if self.format != "avro" and (self.avro_schema is not None or self.registry is not None):
            raise ValueError("avro_schema and registry belong to format: avro")
        self._check_names()
        return self

    def _check_names(self) -> None:
        names = list(self.metadata_columns.values())
        names += [column.name for column in parse_ddl(self.schema)] if self.schema else []
        names += CHANGE_COLUMNS if self.format == "debezium" else ()
        folded = [name.lower() for name in names]
        twice = next((name for name in names if folded.count(name.lower()) > 1), None)
        if twice is not None:
            raise ValueError(f"two columns are called {twice}; rename one: metadata: {{offset: position}}")

    @property
    def metadata_columns(self) -> dict[MetadataName, str]:
        """What becomes a column → its name."""
        if isinstance(self.metadata, dict):
            return self.metadata
        return {name: f"kafka_{name}" for name in self.metadata}

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Names and patterns, as written."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)


def parse_moment(text: str) -> dt.datetime:
    """An ISO timestamp; without a zone it is UTC. Raises ValueError."""
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("write earliest, latest, or a moment such as 2026-03-02T08:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _shape(kind: str) -> str:
    return "avro_schema" if kind == "avro" else "one column, value"
