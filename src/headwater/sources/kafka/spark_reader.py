"""The same window by Spark's own Kafka source (`reader: spark`): for clusters that only Java's client reaches.

It knows no rejects: a message that does not parse stops the cycle. Its JSON is Spark's, which is more lenient in types
than ours. Slower than librdkafka and Arrow, see docs/decisions/0010-kafka-is-read-by-librdkafka.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.kafka_client import KafkaTls
from headwater.config.kafka_source import KafkaSource
from headwater.model.errors import InputError
from headwater.sources.kafka.consuming import OffsetRange
from headwater.sources.kafka.decoding import Decoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class SparkKafkaRows:
    """One topic's rows of one window, as a DataFrame only."""

    decoding: Decoding
    key: tuple[str, ...]
    order: tuple[str, ...]
    ranges: tuple[OffsetRange, ...]
    ddl: str | None
    options: Mapping[str, str] = field(repr=False)

    @property
    def stream(self) -> str:
        return self.decoding.stream

    @property
    def schema(self) -> pa.Schema:
        return self.decoding.schema

    def dataframe(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format("kafka").options(**{**self.options, **range_options(self.ranges)})
        return reader.load().select(*self._columns())

    def _columns(self) -> list[Column]:
        from pyspark.sql import functions as f  # noqa: PLC0415 - an idle poll imports no PySpark

        if self.decoding.format == "json":
            parsed = f.from_json(f.col("value").cast("string"), self.ddl or "", {"mode": "FAILFAST"})
            values = [parsed.getField(name).alias(name) for name in self.decoding.values.names]
        else:
            values = [f.col("value").cast("string" if self.decoding.format == "text" else "binary").alias("value")]
        types = {"key": "string"} if self.decoding.key_as == "text" else {}
        named = [
            (f.col(name).cast(types[name]) if name in types else _as_ours(f.col(name), name)).alias(column)
            for name, column in self.decoding.metadata
        ]
        return values + named


def _as_ours(column: Column, name: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    if name != "headers":
        return column
    renamed = f.transform(column, lambda h: f.struct(h["key"].alias("name"), h["value"].alias("value")))
    return f.coalesce(renamed, f.array().cast("array<struct<name:string,value:binary>>"))


def range_options(ranges: Sequence[OffsetRange]) -> dict[str, str]:
    """Exactly these offsets, in the words of Spark's source."""
    topic = ranges[0].topic
    return {
        "assign": json.dumps({topic: [each.partition for each in ranges]}),
        "startingOffsets": json.dumps({topic: {str(each.partition): each.begin for each in ranges}}),
        "endingOffsets": json.dumps({topic: {str(each.partition): each.end for each in ranges}}),
    }


def spark_options(settings: KafkaSource, folder: Path, splits: int | None) -> dict[str, str]:
    """The connection in the words of Java's client."""
    if settings.options:
        raise InputError(
            "kafka: options are librdkafka's, and reader: spark does not use it",
            hint="write spark_options: {kafka.…: …}",
        )
    security = settings.security
    made = {
        "kafka.bootstrap.servers": settings.brokers,
        "kafka.security.protocol": security.protocol,
        "kafka.isolation.level": settings.isolation,
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }
    if splits is not None:
        made["minPartitions"] = str(splits)
    if security.mechanism and security.username and security.password:
        plain = security.mechanism == "PLAIN"
        module = "plain.PlainLoginModule" if plain else "scram.ScramLoginModule"
        made["kafka.sasl.mechanism"] = security.mechanism
        made["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required "
            f"username={json.dumps(security.username)} password={json.dumps(security.password.reveal())};"
        )
    if isinstance(security.tls, KafkaTls):
        made |= _tls(security.tls, folder)
    return made | {name: str(value) for name, value in settings.spark_options.items()}


def _tls(tls: KafkaTls, folder: Path) -> dict[str, str]:
    made: dict[str, str] = {}
    if tls.ca:
        made |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(folder / tls.ca)}
    if tls.certificate and tls.key:
        # Java's client takes both from one file or from texts; texts spare the user a file of ours on the disk.
        made |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": (folder / tls.certificate).read_text(),
            "kafka.ssl.keystore.key": (folder / tls.key).read_text(),
        }
    if tls.key_password is not None:
        made["kafka.ssl.key.password"] = tls.key_password.reveal()
    if not tls.check_hostname:
        made["kafka.ssl.endpoint.identification.algorithm"] = ""
    return made
