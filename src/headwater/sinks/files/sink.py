"""The files sink: each window of each stream is written, checked and published once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from headwater.config.project import S3Settings
from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.errors import SettingsError, SinkUnreachable
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.model.secret import masked
from headwater.sinks.files.targets import (
    ManifestTarget,
    Record,
    RenameTarget,
    folder_name,
    lease_taken_over,
    storage_errors,
)
from headwater.sinks.files.writer import FileWriter, write_files
from headwater.sinks.rejects import SinkRejects
from headwater.storage.destination import LocalDestination, ObjectDestination, local_path, open_destination


class Target(Protocol):
    """One stream's folder or prefix, and how a window becomes visible there."""

    def where(self, attempt: Attempt) -> str:
        """What a reader opens to read the window."""

    def published(self, attempt: Attempt) -> Record | None:
        """The record of the attempt's window, if readers can see it."""

    def stage(self, attempt: Attempt) -> LocalDestination | ObjectDestination:
        """Where the attempt writes its files; readers do not look there."""

    def prepare(self, staged: Any, record: Record) -> None:
        """Make everything durable, and nothing visible."""

    def publish(self, attempt: Attempt, staged: Any, record: Record) -> Record:
        """Make the whole window visible at once; return the published record, which may be an earlier attempt's."""

    def discard(self, staged: Any) -> None:
        """Remove what will not be published."""

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """Remove files of earlier attempts at this window."""


class FilesSink:
    """Lands each window of each stream once, whole."""

    def __init__(self, settings: FilesSinkSettings, sink_id: str, folder: Path, s3: S3Settings | None = None) -> None:
        self._settings, self._id, self._folder = settings, sink_id, folder
        self._s3 = settings.s3 or s3 or S3Settings()
        if settings.publish == "rename" and local_path(settings.path, folder) is None:
            raise SettingsError(
                f"{sink_id}: publish: rename needs a local folder, and {masked(settings.path)} is an object store",
                hint="use publish: manifest, or remove publish",
            )

    @property
    def id(self) -> str:
        return self._id

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:
        target = self._target(stream)
        with storage_errors(target.where(attempt)):
            record = target.published(attempt)
        return record.landing(self._id, target.where(attempt), 0.0) if record else None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        target = self._target(rows.stream)
        with storage_errors(target.where(attempt)):
            record = target.published(attempt)
        if record is None:
            record = self._write_and_publish(attempt, rows, target)
        return record.landing(self._id, target.where(attempt), time.monotonic() - began)

    def close(self) -> None:
        """Keeps nothing open."""

    def _write_and_publish(self, attempt: Attempt, rows: Rows, target: Target) -> Record:
        with storage_errors(target.where(attempt)):
            staged = target.stage(attempt)
        try:
            with _fenced(attempt, staged):
                record = self._write(attempt, rows, target, staged)
            with attempt.publishing(), _fenced(attempt, staged), storage_errors(target.where(attempt)):
                record = target.publish(attempt, staged, record)
        finally:
            target.discard(staged)
        with storage_errors(target.where(attempt)):
            target.tidy(attempt, record)
        return record

    def _write(
        self, attempt: Attempt, rows: Rows, target: Target, staged: LocalDestination | ObjectDestination
    ) -> Record:
        shared = not isinstance(target, RenameTarget)
        prefix = f"{attempt.window.id}-{uuid.uuid4().hex[:12]}-" if shared else ""
        rejects = SinkRejects.of(self._id, rows, attempt)
        files = write_files(FileWriter(staged, prefix, self._settings.format, rejects), rows, attempt)
        record = Record.of(attempt, rows.stream, self._settings.format, files)
        with storage_errors(target.where(attempt)):
            target.prepare(staged, record)
        return record

    def _target(self, stream: str) -> Target:
        name, path = folder_name(stream), self._settings.path
        path = path.replace("{stream}", name) if "{stream}" in path else f"{path.rstrip('/')}/{name}"
        destination = open_destination(path, self._folder, self._s3)
        if isinstance(destination, ObjectDestination) or self._settings.publish == "manifest":
            return ManifestTarget(destination, stream)
        return RenameTarget(destination.folder, stream)


@contextmanager
def _fenced(attempt: Attempt, staged: LocalDestination | ObjectDestination) -> Iterator[None]:
    """G4: a process with a newer lease removes the folder of a stale one, whose writes then fail."""
    try:
        yield
    except SinkUnreachable as error:
        if isinstance(staged, LocalDestination) and not staged.folder.exists():
            raise lease_taken_over(attempt, staged) from error
        raise
