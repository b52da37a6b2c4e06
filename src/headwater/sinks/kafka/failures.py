"""What the brokers said, as errors of ours: whether to try again, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from confluent_kafka import KafkaError

from headwater.model.errors import HeadwaterError, InputError, RunError, SinkUnreachable, UnknownName, ValueNotKept
from headwater.model.secret import masked

_AWAY = {
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - librdkafka's own codes have an underscore in their public names
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._FATAL,  # noqa: SLF001
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
NO_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_BAD_WISH = {
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_EXCEPTION,
}
_NOT_TAKEN = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_MSG}
_HINTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the topic's max.message.bytes, or leave large columns or rows out",
    KafkaError.INVALID_RECORD: "a compacted topic takes messages with a key alone: write key: in the sink",
}


@dataclass(frozen=True)
class Undelivered:
    """Messages of one topic that were refused for one reason."""

    code: int
    reason: str
    count: int
    first: str  # which message it was, without its content

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def refused(topic: str, brokers: str, sent: int, failures: Iterable[Undelivered]) -> HeadwaterError:
    """The error for a landing that could not be finished."""
    by_reason: dict[int, Undelivered] = {}
    for one in failures:
        known = by_reason.get(one.code)
        by_reason[one.code] = Undelivered(one.code, one.reason, one.count + known.count, known.first) if known else one
    found = sorted(by_reason.values(), key=lambda one: -one.count)
    counts = "; ".join(f"{one.count:,} of {sent:,} messages: {one.reason} (first: {one.first})" for one in found)
    # What has to be acted on comes before what may pass by itself.
    worst = min(found, key=lambda one: one.code in _AWAY)
    return _kind(worst.code)(f"topic {topic} at {brokers} did not take {counts}", hint=_hint(worst.code))


def cluster_error(error: KafkaError, doing: str, brokers: str, why: str = "") -> HeadwaterError:
    """The error for a question that the cluster did not answer; `why` is what the connections said meanwhile."""
    reason = masked((error.code() in _AWAY and why) or plain(error))
    return _kind(error.code())(f"Kafka at {brokers}: {doing}: {reason}", hint=_hint(error.code()))


def plain(error: KafkaError) -> str:
    """The reason in a sentence, without librdkafka's names of threads and states."""
    text = re.sub(r"^.*?(?:bootstrap|/\d+): ", "", error.str())
    return re.sub(r"\s*\((?:after|in state)[^)]*\)", "", text).strip()


def _kind(code: int) -> type[HeadwaterError]:
    if code in _AWAY or code in _REFUSED:
        return SinkUnreachable
    if code in _NOT_TAKEN:
        return ValueNotKept
    if code in _BAD_WISH:
        return InputError
    return UnknownName if code in NO_TOPIC else RunError


def _hint(code: int) -> str:
    if code in _HINTS:
        return _HINTS[code]
    if code in _BAD_WISH:
        return "correct create_topic: of the sink"
    if code in _REFUSED:
        return "see which rights the user has: Describe and Write on the topic, IdempotentWrite on older clusters"
    if code in _AWAY:
        return "see whether brokers: is right and the cluster is up; the next run sends the window again"
    return "create the topic, or write create_topic: {} in the sink" if code in NO_TOPIC else ""
