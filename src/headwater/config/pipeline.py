"""Settings of one pipeline: a source, an optional transform, sinks, a schedule."""

from __future__ import annotations

import datetime as dt
import re
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from headwater.config.files_sink import check_holds_messages
from headwater.config.frozen import Duration, OneKind, Settings
from headwater.config.kafka_source import KafkaSource
from headwater.config.objects_source import ObjectsSource
from headwater.config.postgres_source import PostgresSource
from headwater.config.schedule import parse_every
from headwater.config.sinks import SinkSettings, check_table_name
from headwater.config.sql_source import SqlSource


class SourceSettings(OneKind):
    """Where rows come from: exactly one kind of source."""

    called: ClassVar[str] = "kind of source"

    sql: SqlSource | None = None
    """Poll tables of a SQL database by a column that grows."""
    kafka: KafkaSource | None = None
    """Read topics of a Kafka cluster by their offsets."""
    objects: ObjectsSource | None = None
    """Watch a bucket or a folder, and read objects that are new or were changed."""
    postgres: PostgresSource | None = None
    """Capture changes straight from PostgreSQL's log."""


class PythonTransform(Settings):
    """A function that takes a DataFrame and gives one."""

    python: str = Field(pattern=r"^[\w.]+:\w+$", examples=["shop.clean:only_paid"])
    """`package.module:function`; the pipeline file's folder is on the path."""


class PipelineSettings(Settings):
    """One pipeline file."""

    pipeline: str = Field(min_length=1, examples=["content"])
    """The pipeline's name: its progress is kept under it."""
    every: str | None = Field(default=None, examples=["5s", "*/5 * * * *"])
    """`5s`, or a cron line (`*/5 * * * *`, UTC); without it the pipeline runs once."""
    jitter: Duration | None = Field(default=None, examples=["2s"])
    """Start each cycle up to this much later, at random, so that many pipelines do not start at once."""
    lease: Duration = Field(default="30s", validate_default=True, examples=["30s"])
    """How long another process waits before it takes over from one that went silent."""
    source: SourceSettings = Field(examples=["{sql: {url: …, table: …, cursor: …}}"])
    """Where rows come from."""
    transform: str | PythonTransform | None = Field(
        default=None, examples=["SELECT *, upper(state) AS state_code FROM rows"]
    )
    """Spark SQL over the view `rows`, or `python: package.module:function`."""
    sinks: list[SinkSettings] = Field(min_length=1, examples=["[console: {}]"])
    """In this order; the mark moves when the last one has the rows."""
    rejects: str | None = Field(default=None, examples=["lake.rejects.{stream}"])
    """The Iceberg table for rows that cannot be kept; by default the first Iceberg sink's, with `__rejects` behind it."""
    max_rejects: int = Field(default=1_000, ge=0)
    """How many rows of one window of a stream may be set aside; with more of them it stops and its mark stays."""

    @property
    def rejects_table(self) -> str:
        """Where rejects land, with the placeholders of an Iceberg sink's table."""
        if self.rejects:
            return self.rejects
        tables = (sink.iceberg.table for sink in self.sinks if sink.iceberg)
        plain = re.sub(r"\W", "_", self.pipeline)
        return f"{next(tables, f'lake.rejects.{plain}_{{stream}}')}__rejects"

    @field_validator("sinks")
    @classmethod
    def _objects_can_be_replaced(cls, sinks: list[SinkSettings], info: ValidationInfo) -> list[SinkSettings]:
        """Knows the source, which stands before; a source that has mistakes of its own is not looked at."""
        source = info.data.get("source")
        if isinstance(source, SourceSettings):
            for number, sink in enumerate(sinks, start=1):
                if sink.iceberg and sink.iceberg.mode == "replace_object":
                    _check_names_objects(source, f"sinks[{number}].iceberg.mode: replace_object")
                if sink.files and sink.files.layout == "connect":
                    check_holds_messages(source.kafka, source.kind, transformed=bool(info.data.get("transform")))
            _check_somebody_removes(source, sinks)
        return sinks

    @field_validator("every", mode="before")
    @classmethod
    def _duration_or_cron(cls, value: object) -> object:
        if value is not None:
            parse_every(value)
        return value

    @field_validator("rejects")
    @classmethod
    def _names_a_table(cls, table: str | None) -> str | None:
        return table and check_table_name(table)

    @field_validator("lease")
    @classmethod
    def _takes_time(cls, value: dt.timedelta) -> dt.timedelta:
        if not value:
            raise ValueError("write a duration above zero, for example 30s")
        return value


def _check_names_objects(source: SourceSettings, wanted: str) -> None:
    """Rows can be replaced by object only where each row says which one it came from (G12)."""
    if source.objects is None:
        raise ValueError(
            f"{wanted} is for a source of objects, and this one is {source.kind}; write mode: append, merge or replace"
        )
    if "url" not in source.objects.metadata_columns:
        raise ValueError(
            f"{wanted} finds an object's rows by its url; write url among source.objects.metadata, which has it by default"
        )


def _check_somebody_removes(source: SourceSettings, sinks: list[SinkSettings]) -> None:
    modes = {sink.iceberg.mode for sink in sinks if sink.iceberg}
    if source.objects and source.objects.deleted == "remove_rows" and "replace_object" not in modes:
        raise ValueError(
            "source.objects.deleted: remove_rows needs a sink that knows which rows an object brought; "
            "write iceberg: {table: …, mode: replace_object}, or deleted: ignore"
        )
