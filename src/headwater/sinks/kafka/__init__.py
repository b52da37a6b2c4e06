"""The Kafka sink: each row becomes one message of a topic, at least once.

`land` returns when every message is acknowledged by all in-sync replicas, so nothing is lost. A crash after that and
before the mark has moved leaves messages that the next run writes again: no transaction spans Kafka and the progress
store, and a topic cannot be asked which windows it holds. So `landed` knows nothing, and the repeats are for readers
to drop: they have the same `headwater.position` (`positions.py` says when exactly that can be relied on).

Messages are visible from the moment they are written, so there is no step between writing and publishing: a process
that lost its lease in the middle of a window cannot take back what it sent. What it sent are repeats as well.
"""

from headwater.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
