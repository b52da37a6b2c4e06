"""Connector templates: Debezium for PostgreSQL, and the S3 sinks of Confluent and Aiven.

Every value differs from its default because Headwater needs it, or because the default loses data;
docs/how-to/manage-connect.md lists the reasons, one by one.
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
    """The tables to capture from PostgreSQL, and the names to use."""

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
            raise InputError(
                f"--table {table!r} is not schema.table", hint="write schema.table, for example public.orders"
            )
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
    """The topics and their bucket."""

    name: str
    topics: Sequence[str]
    bucket: str
    region: str
    endpoint: str | None = None
    folder: str = "topics"
    rows: int = 10_000
    seconds: int = 60


def s3_template(target: S3Target, kind: S3Kind) -> Template:
    """A sink whose objects Headwater's objects source can read; its keys come from the environment."""
    config = _confluent(target) if kind == "confluent" else _aiven(target)
    return {"name": target.name, "config": {**_topics(target.topics), "tasks.max": "1", **config}}


def _confluent(target: S3Target) -> dict[str, str]:
    """The bytes of the values, one per line. Its JSON format would drop the schemas, which decimals need."""
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
    """One object per message, with key, offset, timestamp and headers beside the value."""
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


def _converters(converter: str, *, schemas: bool | None = None) -> dict[str, str]:
    config: dict[str, str] = {}
    for field in ("key", "value"):
        config[f"{field}.converter"] = converter
        if schemas is not None:
            config[f"{field}.converter.schemas.enable"] = "true" if schemas else "false"
    return config


def _topics(topics: Sequence[str]) -> dict[str, str]:
    """Plain names as a list; with a pattern among them, one regular expression."""
    if not any("*" in topic for topic in topics):
        return {"topics": ",".join(topics)}
    return {"topics.regex": "|".join(".*".join(map(re.escape, topic.split("*"))) for topic in topics)}


def _plain(name: str) -> str:
    """A name that is valid for slots, publications and topics."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())[:_NAME_LENGTH]
