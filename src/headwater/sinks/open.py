"""Imports at first use: an idle poll must not load the drivers of sources, sinks and stores that it does not need."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

from headwater.config.pipeline import SinkSettings
from headwater.config.project import S3Settings
from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.model.protocols.lake import LakeSink
from headwater.model.protocols.sink import Sink
from headwater.model.rows import REJECTS_SINK


def load(target: str) -> Any:
    """The object that `module:name` names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class SinkContext:
    """What sinks need from the project: relative paths start at `folder`, the console is `out`."""

    folder: Path
    out: TextIO
    s3: S3Settings = field(default_factory=S3Settings)


# Kind → how to open it, and what it takes from the context beside its settings and its id.
SINKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "iceberg": ("headwater.sinks.iceberg.sink:IcebergSink", ()),
    "files": ("headwater.sinks.files:open_files", ("folder", "s3")),
    "kafka": ("headwater.sinks.kafka:KafkaSink", ("folder",)),
    "console": ("headwater.sinks.console:ConsoleSink", ("out",)),
}


def open_sink(settings: SinkSettings, position: int, context: SinkContext) -> Sink:
    """The sink at a position of a pipeline's list, counted from 1."""
    target, names = SINKS[settings.kind]
    component = getattr(settings, settings.kind)
    sink = load(target)(component, f"{position}:{settings.kind}", *(getattr(context, name) for name in names))
    return cast("Sink", sink)


def open_reject_sink(table: str) -> LakeSink:
    """The sink of a pipeline's rejects: one row per reject."""
    target, _ = SINKS["iceberg"]
    return cast("LakeSink", load(target)(IcebergSinkSettings(table=table, mode="merge", key=["id"]), REJECTS_SINK))
