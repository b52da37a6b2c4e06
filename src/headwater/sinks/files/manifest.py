"""Publish a window by a manifest that names its files: for object stores, which cannot rename.

On a local disk a manifest is created only if there is none (a hard link), so the first writer wins. Object
stores are written through Arrow, which has no conditional write: of two writers of one window the later
manifest stands, both name whole sets of files of that very window, and no reader counts both. Files that
another attempt left behind are therefore never removed there: its manifest might still come.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from headwater.model.errors import SinkUnreachable
from headwater.model.sink import Attempt
from headwater.sinks.files.durable import durable_file, durable_folder, sync_folder
from headwater.sinks.files.places import LocalPlace, ObjectPlace
from headwater.sinks.files.record import Record

_MANIFESTS, _DATA = "_manifests", "data"


@dataclass(frozen=True)
class LocalManifestTarget:
    """One stream's folder on a local disk."""

    folder: Path
    stream: str

    def where(self, attempt: Attempt) -> str:
        return str(self._manifest(attempt))

    def published(self, attempt: Attempt) -> Record | None:
        try:
            data = self._manifest(attempt).read_bytes()
        except FileNotFoundError:
            return None
        return Record.read(data, attempt, self.stream, self.where(attempt))

    def stage(self, attempt: Attempt) -> LocalPlace:  # noqa: ARG002 - the same form as the other targets
        durable_folder(self.folder / _DATA)
        durable_folder(self.folder / _MANIFESTS)
        return LocalPlace(self.folder / _DATA)

    def prepare(self, place: LocalPlace, record: Record) -> None:  # noqa: ARG002
        sync_folder(place.folder)

    def publish(self, attempt: Attempt, place: LocalPlace, record: Record) -> Record:  # noqa: ARG002
        manifest = self._manifest(attempt)
        scratch = manifest.with_name(f".{manifest.name}.{uuid.uuid4().hex[:8]}")
        try:
            durable_file(scratch, record.to_bytes())
            # A link fails where a rename would replace: whoever is first with a window stays (G2, G4).
            os.link(scratch, manifest)
        except FileExistsError:
            first = self.published(attempt)
            if first is None:
                raise
            return first
        except PermissionError as error:
            raise SinkUnreachable(
                f"cannot publish {manifest}: {error.strerror}; the file system may have no hard links",
                hint="check the permissions, or use publish: rename",
            ) from error
        finally:
            scratch.unlink(missing_ok=True)
        sync_folder(manifest.parent)
        return record

    def discard(self, place: LocalPlace) -> None:
        """Files that no manifest names do not count; `tidy` removes them once the window is published."""

    def tidy(self, attempt: Attempt, record: Record) -> None:
        # Only now: before the manifest stood, a stale writer could still have published what we remove.
        named = {part.name for part in record.files}
        for path in (self.folder / _DATA).glob(f"*{attempt.window.id}-*"):
            if path.name not in named:
                path.unlink(missing_ok=True)

    def _manifest(self, attempt: Attempt) -> Path:
        return self.folder / _MANIFESTS / f"{attempt.window.id}.json"


@dataclass(frozen=True)
class ObjectManifestTarget:
    """One stream's prefix in an object store."""

    prefix: ObjectPlace
    stream: str

    def where(self, attempt: Attempt) -> str:
        return f"{self._manifests()}/{attempt.window.id}.json"

    def published(self, attempt: Attempt) -> Record | None:
        data = self._manifests().read(f"{attempt.window.id}.json")
        return None if data is None else Record.read(data, attempt, self.stream, self.where(attempt))

    def stage(self, attempt: Attempt) -> ObjectPlace:  # noqa: ARG002
        place = self.prefix.under(_DATA)
        for part in (place, self._manifests()):
            system, root = part.system()
            system.create_dir(root, recursive=True)
        return place

    def prepare(self, place: ObjectPlace, record: Record) -> None:
        """A closed object is durable."""

    def publish(self, attempt: Attempt, place: ObjectPlace, record: Record) -> Record:  # noqa: ARG002
        if first := self.published(attempt):
            return first
        manifests, name = self._manifests(), f"{attempt.window.id}.json"
        file = manifests.create(name)
        file.write(record.to_bytes())
        manifests.finish(file, name)
        return record

    def discard(self, place: ObjectPlace) -> None:
        """Objects that no manifest names do not count."""

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """See the module's first lines."""

    def _manifests(self) -> ObjectPlace:
        return self.prefix.under(_MANIFESTS)
