"""The files sink: Parquet, JSON lines or CSV, one folder or one manifest per window; or messages as Connect's S3 sinks.

`rename` (local disks): a window appears as the folder `<path>/<stream>/window=<id>/`, whole, by one rename.
`manifest` (object stores): files lie under `<path>/<stream>/data/`; those that a `_manifests/<window>.json`
names count, all others are leftovers of attempts that never published.

A window has one name in every attempt, so it is published once, by whoever comes first (G2, G4). A rewind
reads rows again into windows of their own: files are added, never replaced.

What text formats hold: instants in UTC and wall clocks as ISO 8601 with microseconds, decimals as text in
JSON, bytes in base64, nested values as JSON. CSV quotes every text, so `""` is an empty one and nothing at
all is NULL. NaN has no form in JSON and is refused (G8).
"""

from __future__ import annotations

from pathlib import Path

from headwater.config.files_sink import FilesSink as FilesSettings
from headwater.config.s3 import S3Settings
from headwater.model.sink import Sink
from headwater.sinks.files.messages import MessageFilesSink
from headwater.sinks.files.sink import FilesSink

__all__ = ["FilesSink", "MessageFilesSink", "open_files"]


def open_files(settings: FilesSettings, label: str, folder: Path, s3: S3Settings) -> Sink:
    """The sink that the settings' layout names; `s3` is the project's."""
    if settings.layout == "connect":
        return MessageFilesSink(settings, label, folder, s3)
    return FilesSink(settings, label, folder, s3)
