"""Settings of the `kafka` source, of `format: debezium`, and of every Kafka client: brokers, credentials, librdkafka's options."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.ddl import parse_ddl
from headwater.config.settings import Duration, SecretText, Settings
from headwater.model.rows import CHANGE_COLUMNS

OptionValue = str | int | float | bool

# Options of librdkafka that are settings here: if both were set, one would be ignored.
_OWN_SETTINGS = {
    "bootstrap.servers": "brokers",
    "metadata.broker.list": "brokers",
    "security.protocol": "security",
    "sasl.mechanism": "security.mechanism",
    "sasl.mechanisms": "security.mechanism",
    "sasl.username": "security.username",
    "sasl.password": "security.password",
}


class KafkaTlsSettings(Settings):
    """Encrypted connections; paths are relative to the pipeline's file."""

    ca: str | None = None
    """File with the certificates to trust, PEM. Default: those of the system."""
    certificate: str | None = None
    """File with our own certificate, PEM, for brokers that ask clients for one."""
    key: str | None = None
    """File with the certificate's private key, PEM."""
    key_password: SecretText | None = None
    """Of the private key."""
    check_hostname: bool = True
    """Whether the broker's certificate must name the host of the connection."""

    @model_validator(mode="after")
    def _both_or_none(self) -> KafkaTlsSettings:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together; write both or neither")
        return self


class KafkaSecuritySettings(Settings):
    """Encryption and credentials."""

    tls: bool | KafkaTlsSettings = False
    """`true`, or where the certificates are."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """The SASL mechanism. Others by `options`."""
    username: str | None = None
    """For SASL."""
    password: SecretText | None = None
    """For SASL."""

    @model_validator(mode="after")
    def _complete_login(self) -> KafkaSecuritySettings:
        credentials = (self.mechanism, self.username, self.password)
        if any(credentials) and not all(credentials):
            raise ValueError("mechanism, username and password belong together; write all three or none")
        return self

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        return f"{'SASL_' if self.mechanism else ''}{'SSL' if self.tls else 'PLAINTEXT'}"


class KafkaClientSettings(Settings):
    """The connection to a Kafka cluster."""

    brokers: str = Field(min_length=1, examples=["localhost:9092"])
    """`host:port`, several with commas; one that answers is enough to find the others."""
    security: KafkaSecuritySettings = KafkaSecuritySettings()
    """TLS and SASL."""
    options: dict[str, OptionValue] = {}
    """Any other option of librdkafka, as it spells it: `{client.id: headwater, socket.keepalive.enable: true}`."""

    @field_validator("options")
    @classmethod
    def _not_set_twice(cls, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        for name, setting in _OWN_SETTINGS.items():
            # Mechanisms that we do not know (OAUTHBEARER) are set by options alone, protocol included.
            if name in options and not (name.startswith(("sasl.", "security.")) and "sasl.mechanisms" in options):
                raise ValueError(f"{name} is set by {setting}")
        return options

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # G11: `ssl.key.pem` is a secret as well; no list of names would be complete.
        for name, value in super().__repr_args__():
            yield name, sorted(value) if name == "options" else value


@dataclass(frozen=True)
class ClientOptions:
    """All options for librdkafka. Picklable, so that tasks can connect; its repr shows only the brokers (G11)."""

    brokers: str
    _values: tuple[tuple[str, OptionValue], ...] = field(repr=False)

    def reveal(self, **more: OptionValue) -> dict[str, OptionValue]:
        """For a client's constructor; `more` are written with underscores, and win."""
        return {**dict(self._values), **{name.replace("_", "."): value for name, value in more.items()}}


def client_options(settings: KafkaClientSettings, folder: Path) -> ClientOptions:
    """The settings as librdkafka's options; relative paths start at `folder`."""
    security = settings.security
    options: dict[str, OptionValue] = {
        "bootstrap.servers": settings.brokers,
        "security.protocol": security.protocol.lower(),
        # librdkafka would print every lost connection to the terminal; real problems are raised as errors.
        "log_level": 0,
    }
    if security.mechanism and security.username and security.password:
        options["sasl.mechanisms"] = security.mechanism
        options["sasl.username"] = security.username
        options["sasl.password"] = security.password.reveal()
    if isinstance(security.tls, KafkaTlsSettings):
        options |= _tls(security.tls, folder)
    return ClientOptions(settings.brokers, tuple({**options, **settings.options}.items()))


def _tls(tls: KafkaTlsSettings, folder: Path) -> dict[str, OptionValue]:
    files = {"ssl.ca.location": tls.ca, "ssl.certificate.location": tls.certificate, "ssl.key.location": tls.key}
    options: dict[str, OptionValue] = {name: str(folder / path) for name, path in files.items() if path is not None}
    if tls.key_password is not None:
        options["ssl.key.password"] = tls.key_password.reveal()
    if not tls.check_hostname:
        options["ssl.endpoint.identification.algorithm"] = "none"
    return options


TimeUnit = Literal["micros", "millis", "nanos", "iso"]


class DebeziumSettings(Settings):
    """What Debezium's events do not contain. Events with schemas contain most of it."""

    key: list[str] | dict[str, list[str]] = Field(default=[], examples=["[id]"])
    """The key's columns where messages have no key of their own: for all streams, or per stream: `{shop.public.orders: [id]}`."""
    type_changes: Literal["refuse", "new_column"] = "refuse"
    """A column that gets another type, not only a wider one. refuse: the pipeline stops. new_column: later values land in a column `name__type`."""
    unavailable: str = Field(default="__debezium_unavailable_value", min_length=1)
    """The placeholder of values that an update did not change and PostgreSQL did not send (the connector's `unavailable.value.placeholder`)."""
    times: TimeUnit | dict[str, TimeUnit] = Field(default="micros", examples=["{created: millis}"])
    """For `schema` over events without schemas: how `timestamp_ntz` is written, and with iso also `date`, which is a number of days otherwise. For all columns, or by column: the connector's adaptive modes write `timestamp(3)` and shorter ones in millis, others in micros."""
    decimals: Literal["base64", "text"] = "base64"
    """For `schema` over events without schemas: how `decimal` is written. base64: by `decimal.handling.mode: precise`; text: by string and double."""
    binary: Literal["base64", "base64url", "hex"] = "base64"
    """For `schema`: how `binary` is written (the connector's `binary.handling.mode`)."""

    @field_validator("key")
    @classmethod
    def _names(cls, key: list[str] | dict[str, list[str]]) -> list[str] | dict[str, list[str]]:
        for names in key.values() if isinstance(key, dict) else [key]:
            if len(set(names)) != len(names) or "" in names:
                raise ValueError("a key names each of its columns once")
        return key

    def of_column(self, name: str) -> DebeziumSettings:
        """The settings of one column."""
        if not isinstance(self.times, dict):
            return self
        return self.model_copy(update={"times": self.times.get(name, "micros")})

    def key_of(self, stream: str) -> tuple[str, ...]:
        """The key's columns as configured; empty: those of the messages."""
        return tuple(self.key.get(stream, []) if isinstance(self.key, dict) else self.key)


MetadataName = Literal["topic", "partition", "offset", "timestamp", "key", "headers"]

# Decided by the source: its offsets are in the mark, and nothing else may move them.
_FIXED_OPTIONS = {
    "group.id": "write group",
    "enable.auto.commit": "offsets are committed when a window has landed; write group",
    "enable.auto.offset.store": "offsets are stored in the mark",
    "auto.offset.reset": "write start; data that is gone stops the pipeline (G9)",
    "isolation.level": "write isolation",
    "enable.partition.eof": "the source needs it",
}


class SchemaRegistrySettings(Settings):
    """Confluent's schema registry, or one that speaks its API."""

    url: str = Field(examples=["http://localhost:8081"])
    """Its address."""
    username: str | None = None
    """For basic authentication."""
    password: SecretText | None = None
    """For basic authentication."""


# `schema` is what users call it; pydantic keeps a deprecated method of that name.
warnings.filterwarnings("ignore", message='Field name "schema"')


class KafkaSourceSettings(KafkaClientSettings):
    """Read topics, each as one stream, by one offset per partition."""

    topics: str | list[str] = Field(examples=["[orders]"])
    """A name, a pattern (`orders.*`: `*`, `?` and `[…]` match as in file names) or a list of them. New topics that match are added."""
    format: Literal["json", "debezium", "avro", "text", "binary"] = "json"
    """Of the messages' values. json and avro become columns; text and binary one column, `value`; debezium: change events in JSON become rows of their table, see docs/how-to/read-debezium.md."""
    schema: str | None = Field(default=None, examples=["id bigint, amount decimal(12,2), at timestamp"])  # type: ignore[assignment]
    """For json and debezium: the columns as Spark's DDL; fields that it does not name are left out. Without it the columns are inferred from the messages and kept; see docs/how-to/read-kafka.md."""
    debezium: DebeziumSettings = DebeziumSettings()
    """For debezium: what its events do not contain."""
    avro_schema: str | None = None
    """For avro: a file with the schema that columns are made of (.avsc), for messages with and without the header of a registry."""
    avro_header: Literal["auto", "none", "registry"] = "auto"
    """Whether messages begin with the number of their schema, as a registry's serializers write it. auto: with `registry` yes, else what fits."""
    registry: SchemaRegistrySettings | None = None
    """For avro: where the schemas are that messages name by number."""
    start: str | dict[str, dict[int, int]] = "earliest"
    """First run: `earliest`, `latest`, a timestamp (`2026-03-02T08:00:00Z`), or offsets: `{orders: {0: 100, 1: 150}}`. Partitions and topics that appear later are always read from their first message."""
    metadata: list[MetadataName] | dict[MetadataName, str] = ["partition", "offset", "timestamp"]
    """Metadata columns beside the value: of topic, partition, offset, timestamp, key, headers. A list names them `kafka_partition`, `kafka_offset` …; a mapping sets names: `{offset: position}`. `[]`: none."""
    key_as: Literal["text", "binary"] = "text"
    """How the column `key` holds a message's key; a key that is not UTF-8 is a reject."""
    tombstones: Literal["row", "skip", "reject"] = "row"
    """Messages without a value: a row of NULLs beside the metadata, nothing, or a reject."""
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """read_committed: messages of transactions are read once they are committed, never when they were aborted."""
    group: str | None = None
    """A consumer group to which positions are committed, last, so that ordinary lag tools see them. Never read from."""
    max_rows: int | None = Field(default=None, gt=0)
    """At most this many offsets per cycle, shared fairly over the partitions. With schema inference: by default 500,000; for debezium 1,000,000."""
    splits: int | None = Field(default=None, gt=0)
    """Parallel reads per topic, at least one per partition that has something; by default from the number of messages and the cores."""
    timeout: Duration = Field(default="30s", validate_default=True)
    """How long the brokers may be silent before the cycle fails."""

    removed: ClassVar[Mapping[str, str]] = {
        "reader": "reader: spark was removed, and librdkafka reads every topic; delete this line",
        "spark_options": "these were options of reader: spark, which was removed; write librdkafka's under options",
    }

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
        for name, reason in _FIXED_OPTIONS.items():
            if name in options:
                raise ValueError(f"{name} cannot be set: {reason}")
        return options

    @model_validator(mode="after")
    def _goes_together(self) -> KafkaSourceSettings:
        if self.schema is not None and self.format not in ("json", "debezium"):
            columns = "avro_schema" if self.format == "avro" else "one column, value"
            raise ValueError(f"schema belongs to format: json and debezium; {self.format} has {columns}")
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
        duplicate = next((name for name in names if folded.count(name.lower()) > 1), None)
        if duplicate is not None:
            raise ValueError(f"two columns are called {duplicate}; rename one: metadata: {{offset: position}}")

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
        raise ValueError("write earliest, latest, or a timestamp such as 2026-03-02T08:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
