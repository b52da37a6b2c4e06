"""From a sink's settings to the sink."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from headwater.config.sinks import SinkSettings
from headwater.model.sink import Sink


def open_sink(settings: SinkSettings, position: int, folder: Path, out: TextIO) -> Sink:
    """The sink at a position of a pipeline's list, counted from 1; relative paths start at `folder`, the console is `out`."""
    # Each kind is imported when it is used: an idle poll must not pay for what it does not need.
    if settings.iceberg is not None:
        from headwater.sinks.iceberg.sink import IcebergSink  # noqa: PLC0415

        return IcebergSink(settings.iceberg, f"{position}:iceberg")
    if settings.files is not None:
        from headwater.sinks.files import FilesSink  # noqa: PLC0415

        return FilesSink(settings.files, f"{position}:files", folder)
    if settings.kafka is not None:
        from headwater.sinks.kafka import KafkaSink  # noqa: PLC0415

        return KafkaSink(settings.kafka, f"{position}:kafka", folder)
    if settings.console is not None:
        from headwater.sinks.console import ConsoleSink  # noqa: PLC0415

        return ConsoleSink(settings.console, f"{position}:console", out)
    raise ValueError("settings without a kind of sink")  # the settings' own check comes first
