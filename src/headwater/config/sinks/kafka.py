"""Settings of the Kafka sink."""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from headwater.config.settings import Duration, Settings
from headwater.config.sources.kafka import KafkaClientSettings, OptionValue

# The sink's guarantees depend on these; another value would break them silently.
_FIXED_OPTIONS = {
    "acks": "every message waits for all in-sync replicas",
    "request.required.acks": "every message waits for all in-sync replicas",
    "enable.idempotence": "a resend of librdkafka must not write a message twice",
    "transactional.id": "the sink writes without transactions",
    "delivery.report.only.error": "the sink counts by it",
    "partitioner": "use the setting partitioner",
    "delivery.timeout.ms": "use the setting timeout",
    "message.timeout.ms": "use the setting timeout",
}
_TOPIC = re.compile(r"[A-Za-z0-9._\-]+")
_PLACEHOLDER = re.compile(r"\{([^}]*)\}")
_PLACEHOLDERS = {"stream", "schema", "table"}
_MAX_TOPIC_LENGTH = 249


class CreateTopicSettings(Settings):
    """Properties of a topic that the sink creates."""

    partitions: int | None = Field(default=None, ge=1, examples=[6])
    """How many partitions; by default the brokers' setting."""
    replication: int | None = Field(default=None, ge=1, examples=[3])
    """How many copies of each; by default the brokers' setting."""
    options: dict[str, OptionValue] = {}
    """Options of the topic, as Kafka spells them: `{retention.ms: 604800000}`."""


class KafkaSinkSettings(KafkaClientSettings):
    """Write each row to a Kafka topic, at least once: after a crash a window's messages can appear twice.

    Kafka and the progress store share no transaction, so recovery sends a window again if it cannot know that Kafka
    has it. Repeated messages have the same `headwater.position` header.
    """

    topic: str = Field(examples=["content_delta"])
    """`{schema}` and `{table}` are replaced by the parts of a stream's name (`sales.orders`), `{stream}` by its last part."""
    key: str | list[str] | None = None
    """The column whose text is the message's key; of several, a JSON object. By default the source's primary key;
    `[]`: no key."""
    format: Literal["json", "avro"] = "json"
    """Of the values. json: an object per row; decimals as text, times in ISO 8601, bytes in base64. avro: see
    `avro_schema`."""
    avro_schema: str | None = Field(default=None, examples=["./content.avsc"])
    """For avro: the file with the schema that readers use. If it does not exist, the first window writes it from the
    source's columns; later columns that do not fit it are refused. Placeholders as in `topic`."""
    headers: bool = True
    """Whether messages say where they come from: `headwater.pipeline`, `headwater.stream`, `headwater.run`,
    `headwater.window`, and `headwater.position`, by which repeats are found."""
    create_topic: CreateTopicSettings | None = None
    """Create a missing topic: `{}`, or with how many partitions. Without it a missing topic is an error."""
    partitioner: Literal["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "random"] = (
        "murmur2_random"
    )
    """How a key maps to a partition. The default is that of Java's clients, so both write a key to the same
    partition. consistent_random is librdkafka's default."""
    timeout: Duration = Field(default="2m", validate_default=True, examples=["2m"])
    """How long a message may wait for its acknowledgement before the run fails."""

    @field_validator("topic")
    @classmethod
    def _names_a_topic(cls, topic: str) -> str:
        unknown = set(_PLACEHOLDER.findall(topic)) - _PLACEHOLDERS
        if unknown:
            raise ValueError(f"{{{min(unknown)}}} is unknown; write {{stream}}, {{schema}} or {{table}}")
        fixed = _PLACEHOLDER.sub("x", topic)
        if not _TOPIC.fullmatch(fixed) or fixed in {".", ".."} or len(fixed) > _MAX_TOPIC_LENGTH:
            raise ValueError(
                f"{topic!r} is not a topic name: letters, digits, '.', '_' and '-', at most {_MAX_TOPIC_LENGTH} of them"
            )
        return topic

    @field_validator("key")
    @classmethod
    def _each_once(cls, key: str | list[str] | None) -> str | list[str] | None:
        if isinstance(key, list) and len(set(key)) != len(key):
            raise ValueError(f"a key column is named twice: {', '.join(key)}")
        return key

    @field_validator("options")
    @classmethod
    def _keeps_the_promise(cls, options: dict[str, OptionValue]) -> dict[str, OptionValue]:
        for name, why in _FIXED_OPTIONS.items():
            if name in options:
                raise ValueError(f"{name} cannot be set here: {why}")
        return options

    @field_validator("timeout")
    @classmethod
    def _takes_time(cls, value: dt.timedelta) -> dt.timedelta:
        if value < dt.timedelta(seconds=1):
            raise ValueError("write a duration of at least 1s, for example 2m")
        return value

    @model_validator(mode="after")
    def _readers_know_the_schema(self) -> KafkaSinkSettings:
        if (self.format == "avro") != (self.avro_schema is not None):
            raise ValueError(
                "format: avro and avro_schema: belong together: an Avro value is unreadable without its schema"
            )
        return self

    @property
    def key_columns(self) -> tuple[str, ...] | None:
        """None: the source's primary key."""
        return (self.key,) if isinstance(self.key, str) else None if self.key is None else tuple(self.key)
