"""Settings of one pipeline: a source, an optional transform, sinks, a schedule."""

from __future__ import annotations

from pydantic import Field, model_validator

from headwater.config.frozen import Duration, Settings
from headwater.config.sinks import SinkSettings
from headwater.config.sql_source import SqlSource


class SourceSettings(Settings):
    """Exactly one kind of source."""

    sql: SqlSource | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> SourceSettings:
        if self.sql is None:
            raise ValueError("write one kind of source: sql")
        return self


class PythonTransform(Settings):
    """A function that takes a DataFrame and gives one."""

    python: str = Field(pattern=r"^[\w.]+:\w+$")
    """`package.module:function`; the pipeline file's folder is on the path."""


class PipelineSettings(Settings):
    """One pipeline file."""

    pipeline: str = Field(min_length=1)
    """The pipeline's name: its progress is kept under it."""
    every: str | None = None
    """`5s`, or a cron line (`*/5 * * * *`, UTC); without it the pipeline runs once."""
    jitter: Duration | None = None
    """Start each cycle up to this much later, at random, so that many pipelines do not start at once."""
    lease: Duration = Field(default="30s", validate_default=True)
    """How long another process waits before it takes over from one that went silent."""
    source: SourceSettings
    transform: str | PythonTransform | None = None
    """Spark SQL over the view `rows`, or `python: package.module:function`."""
    sinks: list[SinkSettings] = Field(min_length=1)
    """In this order; the mark moves when the last one has the rows."""
