"""Settings of one pipeline: a source, an optional transform, sinks, a schedule."""

from __future__ import annotations

import datetime as dt
import re
from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from headwater.config.settings import Duration, OneKind, Settings, parse_duration
from headwater.config.sinks.console import ConsoleSinkSettings
from headwater.config.sinks.files import FilesSinkSettings, check_holds_messages
from headwater.config.sinks.iceberg import IcebergSinkSettings, check_table_name
from headwater.config.sinks.kafka import KafkaSinkSettings
from headwater.config.sources.kafka import KafkaSourceSettings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.config.sources.sql import SqlSourceSettings

_EVERY_USAGE = "write a duration (5s, 10m) or a cron line in UTC (*/5 * * * *)"
_UNIT_MISSING = "write the unit too, for example 5s"


def parse_every(text: object) -> dt.timedelta | str:
    """A duration, or the cron line as it is. Raises ValueError with what to write."""
    if isinstance(text, int | float):
        raise ValueError(_UNIT_MISSING)
    if not isinstance(text, str):
        raise ValueError(_EVERY_USAGE)
    if len(text.split()) > 1 or text.startswith("@"):
        _check_cron(text)
        return text
    try:
        interval = parse_duration(text)
    except ValueError:
        raise ValueError(_UNIT_MISSING if text.strip().isdecimal() else _EVERY_USAGE) from None
    if not interval:
        raise ValueError("write an interval above zero, for example 100ms")
    return interval


def next_cron(line: str, after: dt.datetime) -> dt.datetime:
    """The first moment of a cron line after another one."""
    from cronsim import CronSim

    return next(CronSim(line, after.astimezone(dt.UTC)))


def _check_cron(line: str) -> None:
    from cronsim import CronSim, CronSimError

    try:
        next(CronSim(line, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)))
    except CronSimError as error:
        raise ValueError(f"not a cron line ({str(error).lower()}); {_EVERY_USAGE}") from None
    except StopIteration:
        raise ValueError(f"a cron line that never matches a date; {_EVERY_USAGE}") from None


class SinkSettings(OneKind):
    """Where rows land: exactly one kind of sink per item."""

    called: ClassVar[str] = "kind of sink"

    console: ConsoleSinkSettings | None = None
    """Print rows."""
    files: FilesSinkSettings | None = None
    """Write files."""
    kafka: KafkaSinkSettings | None = None
    """Write to a Kafka topic."""
    iceberg: IcebergSinkSettings | None = None
    """Write an Iceberg table."""


DEFAULT_LEASE_SECONDS = 30


class SourceSettings(OneKind):
    """The source of rows: exactly one kind."""

    called: ClassVar[str] = "kind of source"

    sql: SqlSourceSettings | None = None
    """Poll tables of a SQL database by a column that grows."""
    kafka: KafkaSourceSettings | None = None
    """Read topics of a Kafka cluster by their offsets."""
    objects: ObjectsSourceSettings | None = None
    """Watch a bucket or a folder, and read new and changed objects."""
    postgres: PostgresSourceSettings | None = None
    """Capture changes from PostgreSQL's WAL."""


class PythonTransformSettings(Settings):
    """A function from DataFrame to DataFrame."""

    python: str = Field(pattern=r"^[\w.]+:\w+$", examples=["shop.clean:only_paid"])
    """`package.module:function`; the pipeline file's folder is on the path."""


class PipelineSettings(Settings):
    """One pipeline file."""

    pipeline: str = Field(min_length=1, examples=["orders"])
    """The pipeline's name, under which its progress is stored."""
    every: str | None = Field(default=None, examples=["5s", "*/5 * * * *"])
    """`5s`, or a cron line (`*/5 * * * *`, UTC); without it the pipeline runs once."""
    jitter: Duration | None = Field(default=None, examples=["2s"])
    """Start each cycle up to this much later, at random, so that many pipelines do not start at once."""
    lease: Duration = Field(default=f"{DEFAULT_LEASE_SECONDS}s", validate_default=True, examples=["30s"])
    """How long another process waits before it takes over from one that no longer renews its lease."""
    source: SourceSettings = Field(examples=["{sql: {url: …, table: …, cursor: …}}"])
    """The source of rows."""
    transform: str | PythonTransformSettings | None = Field(
        default=None, examples=["SELECT *, upper(state) AS state_code FROM rows"]
    )
    """Spark SQL over the view `rows`, or `python: package.module:function`."""
    sinks: list[SinkSettings] = Field(min_length=1, examples=["[console: {}]"])
    """In this order; the mark advances after the last one has landed the rows."""
    rejects: str | None = Field(default=None, examples=["lake.rejects.{stream}"])
    """The Iceberg table for rejects; by default the first Iceberg sink's table name with `__rejects` appended."""
    max_rejects: int = Field(default=1_000, ge=0)
    """The limit of rejects per stream and window; above it the stream stops and its mark stays."""

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
    def _sinks_fit_the_source(cls, sinks: list[SinkSettings], info: ValidationInfo) -> list[SinkSettings]:
        """The source is validated before the sinks; a source with mistakes is not checked here."""
        source = info.data.get("source")
        if isinstance(source, SourceSettings):
            for number, sink in enumerate(sinks, start=1):
                if sink.iceberg and sink.iceberg.mode == "replace_object":
                    _check_replace_object(source, f"sinks[{number}].iceberg.mode: replace_object")
                if sink.files and sink.files.layout == "connect":
                    check_holds_messages(source.kafka, source.kind, transformed=bool(info.data.get("transform")))
            _check_remove_rows(source, sinks)
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


def _check_replace_object(source: SourceSettings, setting: str) -> None:
    """Rows can be replaced by object only where each row says which one it came from (G12)."""
    if source.objects is None:
        raise ValueError(
            f"{setting} is for a source of objects, and this one is {source.kind}; write mode: append, merge or replace"
        )
    if "url" not in source.objects.metadata_columns:
        raise ValueError(
            f"{setting} finds an object's rows by its url; write url among source.objects.metadata, which has it by default"
        )


def _check_remove_rows(source: SourceSettings, sinks: list[SinkSettings]) -> None:
    modes = {sink.iceberg.mode for sink in sinks if sink.iceberg}
    if source.objects and source.objects.deleted == "remove_rows" and "replace_object" not in modes:
        raise ValueError(
            "source.objects.deleted: remove_rows needs a sink that knows which rows came from which object; "
            "write iceberg: {table: …, mode: replace_object}, or deleted: ignore"
        )
