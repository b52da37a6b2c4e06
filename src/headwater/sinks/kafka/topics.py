"""Topics: which one a stream has, whether it is there, and how large a message it takes."""

from __future__ import annotations

import re
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from headwater.config.kafka_client import ClientOptions
from headwater.config.kafka_sink import CreateTopic
from headwater.model.errors import HeadwaterError, UnknownName
from headwater.sinks.kafka.failures import NO_TOPIC, cluster_error, plain

LARGEST = 1_000_000  # librdkafka's own limit, where the topic's cannot be asked for
_LONGEST_ANSWER = 30.0
_GRACE_SECONDS = 3.0
_POLL_SECONDS = 0.1


def topic_for(template: str, stream: str) -> str:
    """The topic of a stream. What a topic's name cannot hold becomes `_` in the stream's part of it."""
    schema, _, table = stream.rpartition(".")
    values = {"{stream}": table, "{table}": table, "{schema}": schema or "default"}
    return re.sub(r"\{\w+\}", lambda found: re.sub(r"[^A-Za-z0-9._\-]", "_", values[found[0]]), template)


class Topics:
    """Asks and changes the cluster; one connection for all windows."""

    def __init__(self, options: ClientOptions, create: CreateTopic | None, timeout_seconds: float) -> None:
        self._brokers, self._create = options.brokers, create
        self._seconds = min(timeout_seconds, _LONGEST_ANSWER)
        self._heard: list[str] = []  # what connections said while nobody answered
        told: dict[str, Any] = {**options.reveal(), "error_cb": lambda error: self._heard.append(plain(error))}
        self._admin = AdminClient(told)

    def ready(self, topic: str) -> int:
        """Return when the topic is there: the bytes of the largest message that it takes, with all that is around it."""
        self._admin.poll(0)
        self._heard.clear()  # what was said of connections that ended long ago explains nothing
        if self._create is not None and not self._exists(topic):
            self._make(topic, self._create)
        # A topic that was made a moment ago, by us or by others, is not known to every broker yet.
        if not self._appears(topic, self._seconds if self._create else _GRACE_SECONDS):
            raise UnknownName(
                f"there is no topic {topic!r} at {self._brokers}",
                hint="create it, or let the sink do so: create_topic: {partitions: 6, replication: 3}",
            )
        return self._largest(topic)

    def _appears(self, topic: str, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._exists(topic):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _exists(self, topic: str) -> bool:
        # Describing asks by name and, unlike a producer's own question, never makes brokers create the topic.
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._seconds)
        try:
            asked[topic].result()
        except KafkaException as error:
            if error.args[0].code() in NO_TOPIC:
                return False
            raise self._error(error, f"looking for topic {topic}") from error
        return True

    def _make(self, topic: str, create: CreateTopic) -> None:
        wanted = NewTopic(
            topic,
            num_partitions=create.partitions or -1,
            replication_factor=create.replication or -1,
            config={name: _text(value) for name, value in create.options.items()},
        )
        try:
            self._admin.create_topics([wanted], request_timeout=self._seconds)[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was first
                raise self._error(error, f"creating topic {topic}") from error

    def _largest(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = self._admin.describe_configs([resource], request_timeout=self._seconds)[resource].result()
        except KafkaException as error:
            # To write needs no right to see the settings; and one broker may not have heard of a new topic.
            if error.args[0].code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *NO_TOPIC}:
                return LARGEST
            raise self._error(error, f"asking for the settings of topic {topic}") from error
        return int(found["max.message.bytes"].value)

    def _error(self, error: KafkaException, doing: str) -> HeadwaterError:
        self._admin.poll(0)  # lets connections say why
        return cluster_error(error.args[0], doing, self._brokers, self._heard[-1] if self._heard else "")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
