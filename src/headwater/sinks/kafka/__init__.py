"""The Kafka sink: each row becomes one message of a topic, at least once.

`land` returns when all in-sync replicas have acknowledged every message, so nothing is lost. After a crash before the
mark has moved, the next run writes the messages again: no transaction spans Kafka and the progress store, and a topic
does not know which windows it holds. So `landed` always returns None, and readers drop repeats: they have the same
`headwater.position` (`positions.py` says exactly when).

Messages are visible as soon as they are written, so writing is publishing: a process that loses its lease in the middle
of a window cannot withdraw its messages. They are repeats as well.
"""

from headwater.sinks.kafka.sink import KafkaSink

__all__ = ["KafkaSink"]
