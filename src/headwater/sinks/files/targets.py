"""Where the files sink publishes a window: by renaming its folder, or by a manifest that names its files.

The manifest is put only if it does not exist, so the first writer of a window wins (G2, G4). Some servers of S3
ignore that condition: there the later of two manifests counts. Both name complete files of the same window, and no
reader counts both.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater.model.errors import LeaseLost, PublishConflict, SettingsError, SinkUnreachable
from headwater.model.landing import Landing
from headwater.model.protocols.sink import Attempt
from headwater.model.secret import masked
from headwater.storage.destination import (
    LocalDestination,
    ObjectDestination,
    WriteRefused,
    durable_file,
    durable_folder,
    sync_folder,
)

_SAFE = re.compile(r"[A-Za-z0-9._\-]")
_MAX_NAME_LENGTH = 150  # file systems allow 255 bytes


@contextmanager
def storage_errors(where: object) -> Iterator[None]:
    """Turn errors of disks and stores into SinkUnreachable."""
    try:
        yield
    except OSError as error:
        hint = error.hint if isinstance(error, WriteRefused) else "check the space, the permissions and the address"
        raise SinkUnreachable(f"cannot write to {where}: {masked(error.strerror or str(error))}", hint=hint) from error


def folder_name(stream: str) -> str:
    """Percent-encoded UTF-8; never `.` or `..`, never hidden from readers by a leading `.` or `_`."""
    encoded = "".join(c if _SAFE.fullmatch(c) else "".join(f"%{byte:02X}" for byte in _bytes(c)) for c in stream)
    if encoded[:1] in {".", "_"}:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > _MAX_NAME_LENGTH:
        encoded = f"{encoded[: _MAX_NAME_LENGTH - 17]}-{_digest(stream)}"
    return encoded


def pipeline_tag(pipeline: str) -> str:
    """A short name of a pipeline, for hidden folders."""
    return _digest(pipeline)[:10]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(text: str) -> str:
    return hashlib.sha256(_bytes(text)).hexdigest()[:16]


@dataclass(frozen=True)
class FileEntry:
    """One file."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class Record:
    """The content of `_landing.json` and of a manifest."""

    pipeline: str
    stream: str
    window: str
    run: str
    epoch: int
    format: str
    published_at: str
    rows: int
    files: tuple[FileEntry, ...]

    @classmethod
    def of(cls, attempt: Attempt, stream: str, format_: str, files: Sequence[FileEntry]) -> Record:
        return cls(
            pipeline=attempt.pipeline,
            stream=stream,
            window=attempt.window.id,
            run=attempt.run,
            epoch=attempt.epoch,
            format=format_,
            published_at=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
            rows=sum(file.rows for file in files),
            files=tuple(files),
        )

    def to_bytes(self) -> bytes:
        return (json.dumps({"version": 1, **asdict(self)}, indent=1) + "\n").encode()

    @classmethod
    def read(cls, data: bytes, attempt: Attempt, stream: str, where: str) -> Record:
        """Raises PublishConflict for anything but a record, SettingsError for one of another pipeline or stream."""
        try:
            fields = json.loads(data)
            fields.pop("version")
            record = cls(**{**fields, "files": tuple(FileEntry(**file) for file in fields["files"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PublishConflict(
                f"{where} is not the record of a window ({type(error).__name__})",
                hint="move it away, or use another path for this pipeline",
            ) from error
        if (record.pipeline, record.stream) != (attempt.pipeline, stream):
            # Two pipelines in one folder could mistake each other's windows for their own.
            raise SettingsError(
                f"{where} holds stream {record.stream} of pipeline {record.pipeline}; "
                f"pipeline {attempt.pipeline} cannot land {stream} there",
                hint="use a separate path for each pipeline",
            )
        return record

    def landing(self, sink_id: str, where: str, seconds: float) -> Landing:
        return Landing(sink_id, self.stream, self.window, self.rows, seconds, {"published": where, "run": self.run})


_RECORD = "_landing.json"  # readers of folders skip names that begin with an underscore


@dataclass(frozen=True)
class RenameTarget:
    """One stream's folder on a local disk."""

    folder: Path
    stream: str

    def where(self, attempt: Attempt) -> str:
        return str(self._folder(attempt))

    def published(self, attempt: Attempt) -> Record | None:
        """The window's record, if the window is there."""
        folder = self._folder(attempt)
        if not folder.exists():
            return None
        try:
            data = (folder / _RECORD).read_bytes()
        except FileNotFoundError as error:
            raise PublishConflict(
                f"{folder} exists without {_RECORD}", hint="the folder is not a window of this sink: move it away"
            ) from error
        return Record.read(data, attempt, self.stream, str(folder / _RECORD))

    def stage(self, attempt: Attempt) -> LocalDestination:
        """A hidden folder for this attempt alone."""
        durable_folder(self.folder)
        pipeline = pipeline_tag(attempt.pipeline)
        self._remove_leftovers(pipeline)
        name = f".writing-{pipeline}-{attempt.window.id}-{attempt.run}-{uuid.uuid4().hex[:8]}"
        staged = LocalDestination(self.folder / name)
        staged.folder.mkdir()
        return staged

    def prepare(self, staged: LocalDestination, record: Record) -> None:
        """Leave exactly the record's files in the hidden folder, all durable."""
        names = {file.name for file in record.files}
        for stray in staged.folder.iterdir():
            if stray.name not in names:  # of a task that failed and was retried
                stray.unlink()
        durable_file(staged.folder / _RECORD, record.to_bytes())
        sync_folder(staged.folder)

    def publish(self, attempt: Attempt, staged: LocalDestination, record: Record) -> Record:
        """The record that readers see now: ours, or that of the attempt that was first."""
        target = self._folder(attempt)
        try:
            staged.folder.rename(target)
        except FileNotFoundError as error:
            raise lease_taken_over(attempt, staged) from error
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            # G2: the name is the window's id, so the folder there is this very window.
            first = self.published(attempt)
            if first is None:
                raise
            return first
        sync_folder(self.folder)
        return record

    def discard(self, staged: LocalDestination) -> None:
        shutil.rmtree(staged.folder, ignore_errors=True)

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """`stage` has removed the leftovers."""

    def _remove_leftovers(self, pipeline: str) -> None:
        """G4: we hold the lease, so other attempts of this pipeline are dead or stale. Without its folder a stale one
        cannot publish any more.
        """
        for leftover in self.folder.glob(f".writing-{pipeline}-*"):
            # Renamed first: otherwise a stale writer could publish the folder while it is being emptied.
            with suppress(FileNotFoundError):
                leftover.rename(leftover.with_name(f".removing-{pipeline}-{uuid.uuid4().hex}"))
        for removed in self.folder.glob(f".removing-{pipeline}-*"):
            shutil.rmtree(removed, ignore_errors=True)

    def _folder(self, attempt: Attempt) -> Path:
        return self.folder / f"window={attempt.window.id}"


def lease_taken_over(attempt: Attempt, staged: object) -> LeaseLost:
    return LeaseLost(
        f"{attempt.pipeline}: a process with a newer lease removed {staged}",
        hint="no rows are lost: the other process lands this window",
    )


_MANIFESTS, _DATA = "_manifests", "data"


@dataclass(frozen=True)
class ManifestTarget:
    """One stream's folder or prefix."""

    destination: LocalDestination | ObjectDestination
    stream: str

    def where(self, attempt: Attempt) -> str:
        return f"{self._manifests}/{_manifest(attempt)}"

    def published(self, attempt: Attempt) -> Record | None:
        data = self._manifests.read(_manifest(attempt))
        return None if data is None else Record.read(data, attempt, self.stream, self.where(attempt))

    def stage(self, attempt: Attempt) -> LocalDestination | ObjectDestination:  # noqa: ARG002 - the protocol's form
        staged = self.destination.under(_DATA)
        if isinstance(staged, LocalDestination):
            durable_folder(staged.folder)
        return staged

    def prepare(self, staged: LocalDestination | ObjectDestination, record: Record) -> None:
        """Each file is durable since it was finished."""

    def publish(
        self,
        attempt: Attempt,
        staged: LocalDestination | ObjectDestination,  # noqa: ARG002 - the protocol's form
        record: Record,
    ) -> Record:
        if first := self.published(attempt):
            return first
        if self._manifests.put_if_absent(_manifest(attempt), record.to_bytes()) is None:
            return record
        first = self.published(attempt)
        if first is None:
            raise PublishConflict(f"{self.where(attempt)} was removed meanwhile", hint="the next cycle tries again")
        return first

    def discard(self, staged: LocalDestination | ObjectDestination) -> None:
        """Files that no manifest names do not count; `tidy` removes them once the window is published."""

    def tidy(self, attempt: Attempt, record: Record) -> None:
        """On disks only: in a store that ignores conditions a stale writer's manifest may still name its files."""
        if not isinstance(self.destination, LocalDestination):
            return
        # Only now: until the manifest was there, a stale writer could have published what we remove.
        names = {file.name for file in record.files}
        for path in (self.destination.folder / _DATA).glob(f"*{attempt.window.id}-*"):
            if path.name not in names:
                path.unlink(missing_ok=True)

    @property
    def _manifests(self) -> LocalDestination | ObjectDestination:
        return self.destination.under(_MANIFESTS)


def _manifest(attempt: Attempt) -> str:
    return f"{attempt.window.id}.json"
