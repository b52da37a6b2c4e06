"""From a sink's settings to the sink."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from headwater.config.s3 import S3Settings
from headwater.config.sinks import SinkSettings
from headwater.model.sink import Sink


def open_sink(settings: SinkSettings, position: int, folder: Path, out: TextIO, s3: S3Settings | None = None) -> Sink:
    """The sink at a position of a pipeline's list, counted from 1; relative paths start at `folder`, the console is `out`.

    `s3` is the project's, for a sink that has none of its own.
    """
    # Each kind is imported when it is used: an idle poll must not pay for what it does not need.
    if settings.iceberg is not None:
        from headwater.sinks.iceberg.sink import IcebergSink  # noqa: PLC0415

        return IcebergSink(settings.iceberg, f"{position}:iceberg")
    if settings.files is not None:
        from headwater.sinks.files import open_files  # noqa: PLC0415

        return open_files(settings.files, f"{position}:files", folder, s3 or S3Settings())
    if settings.kafka is not None:
        from headwater.sinks.kafka import KafkaSink  # noqa: PLC0415

        return KafkaSink(settings.kafka, f"{position}:kafka", folder)
    if settings.console is not None:
        from headwater.sinks.console import ConsoleSink  # noqa: PLC0415

        return ConsoleSink(settings.console, f"{position}:console", out)
    raise ValueError("settings without a kind of sink")  # the settings' own check comes first
