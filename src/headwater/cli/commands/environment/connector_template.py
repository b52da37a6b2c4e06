"""`headwater connect template`: connector files to start from."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from headwater.cli.output import Output


class PublicationMode(enum.StrEnum):
    """Whether Debezium creates the publication."""

    disabled = "disabled"
    filtered = "filtered"


class S3Kind(enum.StrEnum):
    """The vendor of the sink."""

    confluent = "confluent"
    aiven = "aiven"


def postgres(
    out: Output,
    *,
    database: Annotated[str, typer.Option("--database", help="The database to capture.")],
    table: Annotated[
        list[str], typer.Option("--table", metavar="SCHEMA.TABLE", help="A table to capture. Repeatable.")
    ],
    name: Annotated[str | None, typer.Option("--name", help="The connector's name. Default: the database's.")] = None,
    host: Annotated[
        str, typer.Option("--host", help="The server's host, as the worker reaches it.")
    ] = "${POSTGRESQL_HOST:-localhost}",
    port: Annotated[str, typer.Option("--port", help="The server's port.")] = "${POSTGRESQL_PORT:-5432}",
    user: Annotated[str, typer.Option("--user", help="A role with LOGIN and REPLICATION.")] = "${POSTGRESQL_USER}",
    slot: Annotated[str | None, typer.Option("--slot", help="Default: the connector's name.")] = None,
    publication: Annotated[str | None, typer.Option("--publication", help="Default: the connector's name.")] = None,
    publication_mode: Annotated[
        PublicationMode,
        typer.Option(
            "--publication-mode",
            help="disabled: it exists already (`headwater postgres prepare`). filtered: Debezium creates it, as the tables' owner.",
        ),
    ] = PublicationMode.disabled,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="The prefix of topic names. Default: the connector's name.")
    ] = None,
    signal_table: Annotated[
        str,
        typer.Option("--signal-table", metavar="SCHEMA.TABLE", help="The table for snapshots on demand. Empty: none."),
    ] = "public.debezium_signal",
    snapshot: Annotated[
        str,
        typer.Option("--snapshot", metavar="MODE", help="Debezium's snapshot.mode: initial, no_data, when_needed …"),
    ] = "initial",
    schemas: Annotated[
        bool,
        typer.Option("--schemas/--no-schemas", help="Whether events carry the types of their columns."),
    ] = True,
) -> None:
    """Print a debezium.json for PostgreSQL.

    `connect apply` takes its password from the variable POSTGRESQL_PASSWORD.
    """
    from headwater.services.connect.templates import PostgresCapture, postgres_template

    capture = PostgresCapture(
        name=name or database,
        database=database,
        tables=table,
        host=host,
        port=port,
        user=user,
        slot=slot,
        publication=publication,
        publication_mode=publication_mode.value,
        prefix=prefix,
        signal_table=signal_table or None,
        snapshot=snapshot,
        schemas=schemas,
    )
    template = postgres_template(capture)
    out.value(template, json.dumps(template, indent=2))


def s3(
    out: Output,
    *,
    topic: Annotated[
        list[str], typer.Option("--topic", help="A topic's name; `*` matches anything: `shop.*`. Repeatable.")
    ],
    bucket: Annotated[str, typer.Option("--bucket", help="The bucket for the objects.")],
    name: Annotated[str, typer.Option("--name", help="The connector's name.")] = "s3-sink",
    kind: Annotated[S3Kind, typer.Option("--kind", help="The vendor of the worker's connector.")] = S3Kind.confluent,
    region: Annotated[str, typer.Option("--region", help="The bucket's region.")] = "us-east-1",
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="The S3 address, if not Amazon's.")
    ] = None,
    folder: Annotated[str, typer.Option("--folder", help="The prefix of keys.")] = "topics",
    rows: Annotated[int, typer.Option("--rows", min=1, help="Messages per object, at most. Confluent only.")] = 10_000,
    seconds: Annotated[
        int, typer.Option("--seconds", min=1, help="How long an object collects messages. Confluent only.")
    ] = 60,
) -> None:
    """Print an s3_sink.json for Confluent's or Aiven's S3 sink.

    `connect apply` takes its keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """
    from headwater.services.connect.templates import S3Target, s3_template

    target = S3Target(
        name=name,
        topics=topic,
        bucket=bucket,
        region=region,
        endpoint=endpoint,
        folder=folder,
        rows=rows,
        seconds=seconds,
    )
    template = s3_template(target, "aiven" if kind is S3Kind.aiven else "confluent")
    out.value(template, json.dumps(template, indent=2))
