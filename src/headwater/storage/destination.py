"""Where sinks write files: a folder on a disk, or a prefix of an object store. Tasks carry it along.

A file appears under its name once it is complete. Conditional puts decide races: the first writer of a name wins, and a
writer replaces a file only in the version that it has read.
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from headwater.model.errors import PublishConflict, SettingsError
from headwater.model.secret import masked
from headwater.storage.local import etag

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from headwater.config.project import S3Settings
    from headwater.storage.s3.credentials import S3Access


class WriteRefused(OSError):
    """The store refuses a write or does not answer. The text never repeats its answer, which may hold credentials (G11)."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.hint = hint


class Destination(Protocol):
    """Picklable. Several threads may write different files. Raises OSError if a write fails."""

    def under(self, name: str) -> Destination:
        """The folder of that name within this one."""

    def create(self, name: str) -> IO[bytes]:
        """A new file for writing; invisible until `finish`."""

    def finish(self, file: IO[bytes], name: str) -> int:
        """Return its size once it is durable and visible under its name. A second one replaces the first."""

    def read(self, name: str) -> bytes | None:
        """The file's content; None: it does not exist."""

    def put_if_absent(self, name: str, content: bytes) -> str | None:
        """None: the content is durable under this name, now or since before. Else the version of the other content there."""

    def replace(self, name: str, content: bytes, version: str) -> None:
        """Put the content in place of that version. Raises PublishConflict if the file has another version by now."""


def open_destination(path: str, folder: Path, s3: S3Settings) -> LocalDestination | ObjectDestination:
    """What a path or url names; without a scheme it is relative to `folder`. Sends no request."""
    local = local_path(path, folder)
    if local is not None:
        return LocalDestination(local)
    scheme, _, rest = path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("s3", "gs", "az") or not bucket or "@" in bucket or "?" in rest:
        raise SettingsError(
            f"{masked(path)} is not the address of a folder or an object store that can be written to",
            hint="use a folder, s3://bucket/folder, gs://bucket/folder or az://container/folder",
        )
    if scheme != "s3":
        return ObjectDestination(scheme, bucket, prefix.strip("/"))
    from headwater.storage.s3.credentials import find_access

    return ObjectDestination(scheme, bucket, prefix.strip("/"), find_access(bucket, s3))


def local_path(path: str, folder: Path) -> Path | None:
    """The folder that a setting names, relative to `folder`; None: the url of an object store."""
    if "://" not in path:
        return folder / path
    parts = urlsplit(path)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@dataclass(frozen=True)
class LocalDestination:
    """A folder on a disk. A task that runs twice leaves one file per name."""

    folder: Path

    def under(self, name: str) -> LocalDestination:
        return LocalDestination(self.folder / name)

    def create(self, name: str) -> IO[bytes]:
        return _hidden(self.folder / name).open("xb")

    def finish(self, file: IO[bytes], name: str) -> int:
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.close()
        Path(file.name).replace(self.folder / name)
        sync_folder(self.folder)
        return size

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def put_if_absent(self, name: str, content: bytes) -> str | None:
        target = self.folder / name
        durable_folder(target.parent)
        with _hidden_copy(target, content) as copy:
            try:
                os.link(copy, target)  # fails where a rename would replace
            except FileExistsError:
                return None if target.read_bytes() == content else etag(target.stat())
            except PermissionError as error:
                raise WriteRefused(
                    f"{target}: {error.strerror}",
                    "check the permissions; a file system without hard links needs publish: rename",
                ) from error
        sync_folder(target.parent)
        return None

    def replace(self, name: str, content: bytes, version: str) -> None:
        target = self.folder / name
        with _hidden_copy(target, content) as copy:
            if etag(target.stat()) != version:
                raise _conflict(str(target))
            copy.replace(target)
        sync_folder(target.parent)

    def __str__(self) -> str:
        return str(self.folder)


def durable_file(path: Path, content: bytes) -> None:
    """Write a new file; its name is durable after `sync_folder` of its folder."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def durable_folder(folder: Path) -> None:
    """Create it with its parents."""
    if folder.is_dir():
        return
    durable_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hidden(target: Path) -> Path:
    """A name beside the target that readers skip."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")


@contextmanager
def _hidden_copy(target: Path, content: bytes) -> Iterator[Path]:
    copy = _hidden(target)
    try:
        durable_file(copy, content)
        yield copy
    finally:
        copy.unlink(missing_ok=True)


@dataclass(frozen=True)
class ObjectDestination:
    """A prefix of a bucket, by obstore. An object is durable once the store has acknowledged it."""

    scheme: str  # s3, gs, az
    bucket: str
    prefix: str  # without a slash at its ends
    access: S3Access | None = field(default=None, repr=False)  # for s3; None: obstore reads the environment

    def under(self, name: str) -> ObjectDestination:
        return ObjectDestination(self.scheme, self.bucket, self._key(name), self.access)

    def create(self, name: str) -> IO[bytes]:
        import obstore

        with _refusals():
            return _Upload(obstore.open_writer(self._store, self._key(name)))  # type: ignore[return-value]

    def finish(self, file: IO[bytes], name: str) -> int:  # noqa: ARG002 - the protocol's form
        size = file.tell()
        file.close()
        return size

    def read(self, name: str) -> bytes | None:
        with _refusals():
            try:
                return bytes(self._store.get(self._key(name)).bytes())
            except FileNotFoundError:
                return None

    def put_if_absent(self, name: str, content: bytes) -> str | None:
        from obstore.exceptions import AlreadyExistsError

        with _refusals():
            try:
                self._store.put(self._key(name), content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                existing = self._store.get(self._key(name))
                return None if bytes(existing.bytes()) == content else str(existing.meta["e_tag"])
        return None

    def replace(self, name: str, content: bytes, version: str) -> None:
        from obstore.exceptions import PreconditionError

        with _refusals():
            try:
                self._store.put(self._key(name), content, mode={"e_tag": version}, use_multipart=False)
            except PreconditionError:
                raise _conflict(f"{self}/{name}") from None

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    @cached_property
    def _store(self) -> ObjectStore:
        if self.access is not None:
            from headwater.storage.s3.bucket import s3_store

            return s3_store(self.access)
        from headwater.storage.gcs_azure import cloud_store

        return cloud_store(self.scheme, self.bucket, {})

    def __reduce__(self) -> tuple[object, ...]:
        # Without connections: a task makes its own.
        return (ObjectDestination, (self.scheme, self.bucket, self.prefix, self.access))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")


class _Upload(io.RawIOBase):
    """An object that is being written. Garbage collection of one that was not closed must not publish it."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._size = writer, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        with _refusals():
            self._writer.write(bytes(data))
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def close(self) -> None:
        if not self.closed:
            with _refusals():
                self._writer.close()
        super().close()

    def __del__(self) -> None:
        """Drop the upload; `RawIOBase` would close and publish it."""


@contextmanager
def _refusals() -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except WriteRefused:
        raise
    except (BaseError, OSError) as error:
        raise _refusal(str(error)) from None


def _refusal(text: str) -> WriteRefused:
    from headwater.storage.obstore_client import cause_of, status_of
    from headwater.storage.s3.client import ErrorResponse

    status = status_of(text)
    if status is None:
        return WriteRefused(cause_of(text), "check that the server runs at this endpoint and can be reached from here")
    response = ErrorResponse.of(status, text)
    reason = f"{response.code}: {response.message}" if response.code else f"HTTP status {status}"
    return WriteRefused(reason, "check endpoint, region, bucket and credentials; they need the right s3:PutObject")


def _conflict(where: str) -> PublishConflict:
    return PublishConflict(f"{where} was changed by another writer", hint="the next cycle tries again")
