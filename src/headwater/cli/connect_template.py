"""`headwater connect template`: files of connectors to begin with."""

from __future__ import annotations

import enum
import json
from typing import Annotated

import typer

from headwater.cli.output import Output


class PublicationMode(enum.StrEnum):
    """Who makes the publication."""

    disabled = "disabled"
    filtered = "filtered"


class S3Kind(enum.StrEnum):
    """Whose sink."""

    confluent = "confluent"
    aiven = "aiven"


def postgres(
    out: Output,
    *,
    database: Annotated[str, typer.Option("--database", help="The database that is captured.")],
    table: Annotated[list[str], typer.Option("--table", metavar="SCHEMA.TABLE", help="What is captured. Repeatable.")],
    name: Annotated[str | None, typer.Option("--name", help="Of the connector. Default: the database's.")] = None,
    host: Annotated[str, typer.Option("--host", help="As the worker reaches it.")] = "${POSTGRESQL_HOST:-localhost}",
    port: Annotated[str, typer.Option("--port", help="Of the server.")] = "${POSTGRESQL_PORT:-5432}",
    user: Annotated[str, typer.Option("--user", help="With LOGIN and REPLICATION.")] = "${POSTGRESQL_USER}",
    slot: Annotated[str | None, typer.Option("--slot", help="Default: the connector's name.")] = None,
    publication: Annotated[str | None, typer.Option("--publication", help="Default: the connector's name.")] = None,
    publication_mode: Annotated[
        PublicationMode,
        typer.Option(
            "--publication-mode",
            help="disabled: it is there already (`headwater postgres prepare`). filtered: Debezium makes it, as the tables' owner.",
        ),
    ] = PublicationMode.disabled,
    prefix: Annotated[
        str | None, typer.Option("--prefix", help="What topics' names begin with. Default: the connector's name.")
    ] = None,
    signal_table: Annotated[
        str, typer.Option("--signal-table", metavar="SCHEMA.TABLE", help="For snapshots on demand. Empty: none.")
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

    Its password is taken from the variable POSTGRESQL_PASSWORD when it is applied.
    """
    from headwater.services.connect.templates import PostgresCapture, postgres_template  # noqa: PLC0415

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
    made = postgres_template(capture)
    out.value(made, json.dumps(made, indent=2))


def s3(
    out: Output,
    *,
    topic: Annotated[
        list[str], typer.Option("--topic", help="A topic's name; `*` stands for anything: `shop.*`. Repeatable.")
    ],
    bucket: Annotated[str, typer.Option("--bucket", help="Where objects go.")],
    name: Annotated[str, typer.Option("--name", help="Of the connector.")] = "s3-sink",
    kind: Annotated[S3Kind, typer.Option("--kind", help="Whose connector the worker has.")] = S3Kind.confluent,
    region: Annotated[str, typer.Option("--region", help="The bucket's.")] = "us-east-1",
    endpoint: Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="Where it is not Amazon's.")] = None,
    folder: Annotated[str, typer.Option("--folder", help="What keys begin with.")] = "topics",
    rows: Annotated[int, typer.Option("--rows", min=1, help="Messages per object, at most. Confluent's.")] = 10_000,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Until an object is written. Confluent's.")] = 60,
) -> None:
    """Print an s3_sink.json for Confluent's or Aiven's S3 sink.

    Its keys are taken from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY when it is applied.
    """
    from headwater.services.connect.templates import S3Target, s3_template  # noqa: PLC0415

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
    made = s3_template(target, "aiven" if kind is S3Kind.aiven else "confluent")
    out.value(made, json.dumps(made, indent=2))
