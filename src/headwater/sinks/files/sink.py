"""The files sink itself: which target a stream has, and the order of write, check and publish."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any, Protocol

from headwater.config.files_sink import FilesSink as FilesSettings
from headwater.config.s3 import S3Settings
from headwater.model.errors import SettingsError, SinkUnreachable
from headwater.model.landing import Landing
from headwater.model.rows import Rows
from headwater.model.sink import Attempt
from headwater.sinks.files.manifest import LocalManifestTarget, ObjectManifestTarget
from headwater.sinks.files.names import folder_name
from headwater.sinks.files.parts import PartWriter, write_parts
from headwater.sinks.files.places import LocalPlace, ObjectPlace, local_path, object_place, storage_errors
from headwater.sinks.files.record import Record
from headwater.sinks.files.rename import RenameTarget, overtaken
from headwater.sinks.setting_aside import RowsAside


class Target(Protocol):
    """One stream's place, and the way in which a window becomes visible there."""

    def where(self, attempt: Attempt) -> str:
        """What a reader opens to find the window."""

    def published(self, attempt: Attempt) -> Record | None:
        """The record of the attempt's window, if readers can see it."""

    def stage(self, attempt: Attempt) -> Any:
        """A place to write to, out of sight."""

    def prepare(self, place: Any, record: Record) -> None:
        """Everything durable, nothing visible."""

    def publish(self, attempt: Attempt, place: Any, record: Record) -> Record:
        """All at once visible; the record that stands, which may be that of an earlier attempt."""

    def discard(self, place: Any) -> None:
        """Remove what will not be published."""

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """Remove what earlier attempts of this window left behind."""


class FilesSink:
    """Lands each window of each stream once, whole."""

    def __init__(self, settings: FilesSettings, label: str, folder: Path, s3: S3Settings | None = None) -> None:
        self._settings, self._label, self._folder = settings, label, folder
        self._s3 = settings.s3 or s3 or S3Settings()
        if settings.publish == "rename" and local_path(settings.path, folder) is None:
            raise SettingsError(
                f"{label}: publish: rename needs a local folder, and {ObjectPlace(settings.path)} is an object store",
                hint="write publish: manifest, or leave it out",
            )

    @property
    def label(self) -> str:
        return self._label

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:
        target = self._target(stream)
        with storage_errors(target.where(attempt)):
            record = target.published(attempt)
        return record.landing(self._label, target.where(attempt), 0.0) if record else None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        target = self._target(rows.stream)
        with storage_errors(target.where(attempt)):
            record = target.published(attempt)
        if record is None:
            record = self._write_and_publish(attempt, rows, target)
        return record.landing(self._label, target.where(attempt), time.monotonic() - began)

    def close(self) -> None:
        """Nothing is held."""

    def _write_and_publish(self, attempt: Attempt, rows: Rows, target: Target) -> Record:
        with storage_errors(target.where(attempt)):
            place = target.stage(attempt)
        try:
            return self._attempted(attempt, rows, target, place)
        except SinkUnreachable as error:
            if isinstance(place, LocalPlace) and not place.folder.exists():
                raise overtaken(attempt, place) from error
            raise
        finally:
            target.discard(place)

    def _attempted(self, attempt: Attempt, rows: Rows, target: Target, place: LocalPlace | ObjectPlace) -> Record:
        shared = not isinstance(target, RenameTarget)
        prefix = f"{attempt.window.id}-{uuid.uuid4().hex[:12]}-" if shared else ""
        aside = RowsAside.of(self._label, rows, attempt)
        parts = write_parts(PartWriter(place, prefix, self._settings.format, aside), rows, attempt)
        record = Record.of(attempt, rows.stream, self._settings.format, parts)
        with storage_errors(target.where(attempt)):
            target.prepare(place, record)
        attempt.faults.reach("land.written")
        attempt.clear_to_publish()  # G4: asked as late as can be, right before readers see the rows
        with storage_errors(target.where(attempt)):
            record = target.publish(attempt, place, record)
        attempt.faults.reach("land.published")
        with storage_errors(target.where(attempt)):
            target.tidy(attempt, record)
        return record

    def _target(self, stream: str) -> Target:
        name, path = folder_name(stream), self._settings.path
        path = path.replace("{stream}", name) if "{stream}" in path else f"{path.rstrip('/')}/{name}"
        local = local_path(path, self._folder)
        if local is None:
            return ObjectManifestTarget(object_place(path, self._s3), stream)
        if self._settings.publish == "manifest":
            return LocalManifestTarget(local, stream)
        return RenameTarget(local, stream)
