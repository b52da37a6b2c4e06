"""Connectors to begin with: Debezium's for PostgreSQL, and the S3 sinks of Confluent and Aiven.

Every value that is not Debezium's or Connect's default is there because Headwater needs it, or because the default loses
something; docs/how-to/manage-connect.md says why, one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_NAME_LENGTH = 63  # of a slot and of a publication in PostgreSQL

Template = dict[str, str | dict[str, str]]
S3Kind = Literal["confluent", "aiven"]


@dataclass(frozen=True)
class PostgresCapture:
    """What of a PostgreSQL database is captured, and under which names."""

    name: str
    database: str
    tables: Sequence[str]
    host: str
    port: str
    user: str
    slot: str | None = None
    publication: str | None = None
    publication_mode: str = "disabled"
    prefix: str | None = None
    signal_table: str | None = None
    snapshot: str = "initial"
    schemas: bool = True


def postgres_template(capture: PostgresCapture) -> Template:
    """Debezium's PostgreSQL connector; its password comes from the environment."""
    for table in capture.tables:
        if not re.fullmatch(r"[^.,\s]+\.[^.,\s]+", table):
            raise InputError(f"--table {table!r} names no table", hint="write schema.table, for example public.orders")
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": capture.host,
        "database.port": capture.port,
        "database.user": capture.user,
        "database.password": "${POSTGRESQL_PASSWORD}",
        "database.dbname": capture.database,
        "topic.prefix": capture.prefix or _plain(capture.name),
        "table.include.list": ",".join(capture.tables),
        "plugin.name": "pgoutput",
        "slot.name": capture.slot or _plain(capture.name),
        "publication.name": capture.publication or _plain(capture.name),
        "publication.autocreate.mode": capture.publication_mode,
        "snapshot.mode": capture.snapshot,
        "skipped.operations": "none",
        "tombstones.on.delete": "true",
        "heartbeat.interval.ms": "10000",
        "decimal.handling.mode": "precise" if capture.schemas else "string",
        "time.precision.mode": "adaptive_time_microseconds",
        "interval.handling.mode": "string",
        "include.unknown.datatypes": "true",
        **_converters(_JSON, schemas=capture.schemas),
    }
    if capture.signal_table:
        config["signal.data.collection"] = capture.signal_table
    return {"name": capture.name, "config": config}


@dataclass(frozen=True)
class S3Target:
    """Which topics go to which bucket."""

    name: str
    topics: Sequence[str]
    bucket: str
    region: str
    endpoint: str | None = None
    folder: str = "topics"
    rows: int = 10_000
    seconds: int = 60


def s3_template(target: S3Target, kind: S3Kind) -> Template:
    """A sink that writes what Headwater's objects source reads; its keys come from the environment."""
    made = _confluent(target) if kind == "confluent" else _aiven(target)
    return {"name": target.name, "config": {**_topics(target.topics), "tasks.max": "1", **made}}


def _confluent(target: S3Target) -> dict[str, str]:
    """The bytes of the values, one on a line. Its JSON format would leave out the schemas, and decimals need them."""
    return {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "s3.bucket.name": target.bucket,
        "s3.region": target.region,
        **({"store.url": target.endpoint} if target.endpoint else {}),
        "aws.access.key.id": "${AWS_ACCESS_KEY_ID}",
        "aws.secret.access.key": "${AWS_SECRET_ACCESS_KEY}",
        "topics.dir": target.folder,
        "partitioner.class": "io.confluent.connect.storage.partitioner.DefaultPartitioner",
        "format.class": "io.confluent.connect.s3.format.bytearray.ByteArrayFormat",
        "format.bytearray.extension": ".json",
        "flush.size": str(target.rows),
        "rotate.schedule.interval.ms": str(target.seconds * 1000),
        "timezone": "UTC",
        "behavior.on.null.values": "ignore",
        "schema.compatibility": "NONE",
        **_converters(_BYTES),
    }


def _aiven(target: S3Target) -> dict[str, str]:
    """An object a message, with key, offset, timestamp and headers beside the value."""
    name = "/partition={{partition}}/{{topic}}+{{partition}}+{{start_offset:padding=true}}.json"
    return {
        "connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
        "aws.s3.bucket.name": target.bucket,
        "aws.s3.region": target.region,
        **({"aws.s3.endpoint": target.endpoint} if target.endpoint else {}),
        "aws.access.key.id": "${AWS_ACCESS_KEY_ID}",
        "aws.secret.access.key": "${AWS_SECRET_ACCESS_KEY}",
        "file.name.template": f"{target.folder.strip('/')}/{{{{topic}}}}{name}",
        "file.compression.type": "none",
        "format.output.type": "jsonl",
        "format.output.envelope": "true",
        "format.output.fields": "key,value,offset,timestamp,headers",
        **_converters(_JSON, schemas=False),
    }


def _converters(kind: str, *, schemas: bool | None = None) -> dict[str, str]:
    made: dict[str, str] = {}
    for what in ("key", "value"):
        made[f"{what}.converter"] = kind
        if schemas is not None:
            made[f"{what}.converter.schemas.enable"] = "true" if schemas else "false"
    return made


def _topics(topics: Sequence[str]) -> dict[str, str]:
    """Names as they are; with a pattern among them, one expression for all."""
    if not any("*" in topic for topic in topics):
        return {"topics": ",".join(topics)}
    return {"topics.regex": "|".join(".*".join(map(re.escape, topic.split("*"))) for topic in topics)}


def _plain(name: str) -> str:
    """A name that slots, publications and topics may have."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())[:_NAME_LENGTH]
