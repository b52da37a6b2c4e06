"""Publish a window by renaming its folder: readers see all of it or nothing."""

from __future__ import annotations

import errno
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.model.errors import LeaseLost, PublishConflict
from headwater.model.sink import Attempt
from headwater.sinks.files.durable import durable_file, durable_folder, sync_folder
from headwater.sinks.files.names import tag
from headwater.sinks.files.places import LocalPlace
from headwater.sinks.files.record import Record

_RECORD = "_landing.json"  # readers of folders skip names that begin with an underscore


@dataclass(frozen=True)
class RenameTarget:
    """One stream's folder on a local disk."""

    folder: Path
    stream: str

    def where(self, attempt: Attempt) -> str:
        return str(self._published(attempt))

    def published(self, attempt: Attempt) -> Record | None:
        """The window's record, if the window is there."""
        folder = self._published(attempt)
        if not folder.exists():
            return None
        try:
            data = (folder / _RECORD).read_bytes()
        except FileNotFoundError as error:
            raise PublishConflict(
                f"{folder} exists without {_RECORD}", hint="it is not a window of ours: move it away"
            ) from error
        return Record.read(data, attempt, self.stream, str(folder / _RECORD))

    def stage(self, attempt: Attempt) -> LocalPlace:
        """A hidden folder of this attempt's own."""
        durable_folder(self.folder)
        pipeline = tag(attempt.pipeline)
        self._remove_leftovers(pipeline)
        name = f".writing-{pipeline}-{attempt.window.id}-{attempt.run}-{uuid.uuid4().hex[:8]}"
        place = LocalPlace(self.folder / name)
        place.folder.mkdir()
        return place

    def prepare(self, place: LocalPlace, record: Record) -> None:
        """Leave exactly the record's files in the hidden folder, all durable."""
        named = {part.name for part in record.files}
        for stray in place.folder.iterdir():
            if stray.name not in named:  # of a task that failed half-way and was tried again
                stray.unlink()
        durable_file(place.folder / _RECORD, record.to_bytes())
        sync_folder(place.folder)

    def publish(self, attempt: Attempt, place: LocalPlace, record: Record) -> Record:
        """The record that readers see now: ours, or that of whoever was first with this window."""
        target = self._published(attempt)
        try:
            place.folder.rename(target)
        except FileNotFoundError as error:
            raise overtaken(attempt, place) from error
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            # G2: the name is the window's, so a window that is there is this very window.
            first = self.published(attempt)
            if first is None:
                raise
            return first
        sync_folder(self.folder)
        return record

    def discard(self, place: LocalPlace) -> None:
        shutil.rmtree(place.folder, ignore_errors=True)

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """Leftovers went when the attempt began."""

    def _remove_leftovers(self, pipeline: str) -> None:
        """G4: we hold the lease, so other attempts of this pipeline are dead or stale. Without its folder a stale
        one can no longer publish, however late it wakes up.
        """
        for leftover in self.folder.glob(f".writing-{pipeline}-*"):
            # Renamed before it is emptied: else a stale writer could publish it while files vanish from it.
            with suppress(FileNotFoundError):
                leftover.rename(leftover.with_name(f".removing-{pipeline}-{uuid.uuid4().hex}"))
        for doomed in self.folder.glob(f".removing-{pipeline}-*"):
            shutil.rmtree(doomed, ignore_errors=True)

    def _published(self, attempt: Attempt) -> Path:
        return self.folder / f"window={attempt.window.id}"


def overtaken(attempt: Attempt, place: object) -> LeaseLost:
    return LeaseLost(
        f"{attempt.pipeline}: {place} is gone: a process with a newer lease took over and removed it",
        hint="nothing is lost: the other process lands this window",
    )
