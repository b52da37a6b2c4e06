"""The files sink with `layout: connect`: messages of Kafka, named and written as Kafka Connect's S3 sinks do.

Files appear one by one, so a reader may see a part of a window; the mark moves when all are there. Their names and cuts
come from the window, so an attempt that is repeated puts the same files again, and none twice (G2, G4).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headwater.config.files_sink import FilesSink as FilesSettings
from headwater.config.s3 import S3Settings
from headwater.model.errors import SchemaRefused
from headwater.model.landing import Landing
from headwater.model.rows import Rows, SplitRows
from headwater.model.sink import Attempt
from headwater.sinks.files.message_files import Grid, MessageFile, Staging
from headwater.sinks.files.message_lines import MessageLines
from headwater.sinks.files.places import storage_errors
from headwater.sinks.files.shelf import open_shelf
from headwater.sinks.setting_aside import RowsAside
from headwater.sinks.tally import Tally, counted

_AT_ONCE = 8
_NEEDED = ("value", "kafka_partition", "kafka_offset")


class MessageFilesSink:
    """Lands messages. A window that landed already is put again, and changes nothing."""

    def __init__(self, settings: FilesSettings, label: str, folder: Path, s3: S3Settings) -> None:
        self._settings, self._label = settings, label
        self._shelf = open_shelf(settings.path, folder, settings.s3 or s3)

    @property
    def label(self) -> str:
        return self._label

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:  # noqa: ARG002 - the protocol's form
        """Nobody keeps a list of windows here: to put one again is cheap, and harmless."""
        return None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        _check(rows)
        with tempfile.TemporaryDirectory(prefix="headwater-messages-") as folder:
            files = self._staged(attempt, rows, Path(folder))
            attempt.faults.reach("land.written")
            attempt.clear_to_publish()  # G4, and the rejects land before what they stood among (G8)
            self._publish(attempt, files)
        attempt.faults.reach("land.published")
        proof = {"published": self._shelf.where(rows.stream), "files": len(files)}
        seconds = time.monotonic() - began
        return Landing(self._label, rows.stream, attempt.window.id, sum(each.rows for each in files), seconds, proof)

    def close(self) -> None:
        """Nothing is held."""

    def _staged(self, attempt: Attempt, rows: Rows, folder: Path) -> Sequence[MessageFile]:
        grid = Grid.of(attempt.window, rows.stream, self._settings.file_offsets)
        # A replay brings messages from the middle of files that are there: it gets files of its own.
        suffix = f"-{attempt.window.id[:8]}" if attempt.window.part else ""
        staging = Staging(folder, rows.stream, grid, suffix)
        lines, tally = MessageLines(self._settings.fields, rows.schema.names), Tally(attempt.progress)
        asides = RowsAside.of(self._label, rows, attempt)
        for number, split in enumerate(rows.splits if isinstance(rows, SplitRows) else ()):
            aside = asides.part(number)
            for batch in counted(split.read(), number, tally.part):
                with storage_errors(folder):
                    aside.keep(batch, lambda part: staging.add(part, lines.of(part)))
        with storage_errors(folder):
            return staging.finished()

    def _publish(self, attempt: Attempt, files: Sequence[MessageFile]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            others = [
                (file, version) for file, version in zip(files, threads.map(self._put, files), strict=True) if version
            ]
        if others:
            # Written before a rewind, or by a writer that a newer lease has overtaken: only who holds it may decide (G4).
            attempt.clear_to_publish()
        for file, version in others:
            with storage_errors(self._shelf.where(file.name)):
                self._shelf.replace(file.name, file.content, version)

    def _put(self, file: MessageFile) -> str | None:
        with storage_errors(self._shelf.where(file.name)):
            return self._shelf.put(file.name, file.content)


def _check(rows: Rows) -> None:
    missing = [name for name in _NEEDED if name not in rows.schema.names]
    if missing or not isinstance(rows, SplitRows):
        raise SchemaRefused(
            f"{rows.stream}: layout: connect takes messages of a kafka source, and these rows have no {', '.join(missing) or 'offsets'}",
            hint="write format: text and metadata: [partition, offset, timestamp, key, headers] for the source, and no transform",
        )
