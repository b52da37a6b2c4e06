"""The files sink: Parquet, JSON lines or CSV, one folder or one manifest per window; or messages as Connect's S3 sinks.

`rename` (local disks): a window appears as the folder `<path>/<stream>/window=<id>/`, whole, by one rename.
`manifest` (object stores): files lie under `<path>/<stream>/data/`; those that a `_manifests/<window>.json`
names count; all others are leftovers of unpublished attempts.

A window has one name in every attempt, so it is published once, by the first attempt (G2, G4). A rewind
reads rows again into separate windows: files are added, never replaced.

Text formats: instants in UTC and wall clocks as ISO 8601 with microseconds, decimals as text in
JSON, bytes in base64, nested values as JSON. CSV quotes every text: `""` is an empty text, and an
empty field is NULL. JSON has no NaN: it is refused (G8).
"""

from __future__ import annotations

from pathlib import Path

from headwater.config.project import S3Settings
from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.protocols.sink import Sink
from headwater.sinks.files.connect_layout import MessageFilesSink
from headwater.sinks.files.sink import FilesSink

__all__ = ["FilesSink", "MessageFilesSink", "open_files"]


def open_files(settings: FilesSinkSettings, sink_id: str, folder: Path, s3: S3Settings) -> Sink:
    """The sink for the settings' layout; `s3` are the project's settings."""
    if settings.layout == "connect":
        return MessageFilesSink(settings, sink_id, folder, s3)
    return FilesSink(settings, sink_id, folder, s3)
