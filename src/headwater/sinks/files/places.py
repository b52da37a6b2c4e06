"""Where files are written: a local folder or a prefix of an object store. Travels to Spark's tasks."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow.fs import FileSystem, FileType

from headwater.model.errors import SettingsError, SinkUnreachable
from headwater.model.secret import masked

if TYPE_CHECKING:
    from headwater.config.s3 import S3Settings
    from headwater.sources.objects.s3_access import S3Access


class Place(Protocol):
    """A folder that one attempt writes files into."""

    def create(self, name: str) -> IO[bytes]:
        """A new file for writing; it is durable under its name once `finish` has returned."""

    def finish(self, file: IO[bytes], name: str) -> int:
        """Make it durable; return its size."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class LocalPlace:
    """A folder on a disk. A file gets its name when it is whole: a task that is tried twice leaves one."""

    folder: Path

    def create(self, name: str) -> IO[bytes]:
        return (self.folder / f".{name}.{uuid.uuid4().hex[:8]}").open("xb")

    def finish(self, file: IO[bytes], name: str) -> int:
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
        file.close()
        Path(file.name).replace(self.folder / name)
        return size

    def __str__(self) -> str:
        return str(self.folder)


@dataclass(frozen=True)
class ObjectPlace:
    """A prefix of an object store, by its URL. An object appears when it is closed, whole."""

    url: str
    access: S3Access | None = None  # None: Arrow finds its own way

    def create(self, name: str) -> IO[bytes]:
        system, root = self.system()
        return cast("IO[bytes]", system.open_output_stream(f"{root}/{name}"))

    def finish(self, file: IO[bytes], name: str) -> int:  # noqa: ARG002 - the protocol's form
        size = file.tell()
        file.close()
        return size

    def read(self, name: str) -> bytes | None:
        """The object's content; None only when it is proven absent."""
        system, root = self.system()
        if system.get_file_info(f"{root}/{name}").type == FileType.NotFound:
            return None
        with system.open_input_stream(f"{root}/{name}") as file:
            return bytes(file.read())

    def system(self) -> tuple[FileSystem, str]:
        if self.access is not None:
            return _s3(self.access), urlsplit(self.url).netloc + unquote(urlsplit(self.url).path).rstrip("/")
        try:
            system, root = FileSystem.from_uri(self.url)
        except pa.ArrowInvalid as error:
            raise SettingsError(
                f"{self} is no address of an object store that can be written to",
                hint="write for example s3://bucket/folder",
            ) from error
        return system, root.rstrip("/")

    def under(self, name: str) -> ObjectPlace:
        return ObjectPlace(f"{self.url.rstrip('/')}/{name}", self.access)

    def __str__(self) -> str:
        return masked(self.url)


def object_place(url: str, s3: S3Settings) -> ObjectPlace:
    """The prefix that the URL names. A bucket of S3 is reached by the settings, unless the URL itself says how."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or "@" in parts.netloc:
        return ObjectPlace(url)
    from headwater.sources.objects.s3_access import find_access  # noqa: PLC0415 - others need none of it

    return ObjectPlace(url, find_access(parts.netloc, s3))


def _s3(access: S3Access) -> FileSystem:
    """Arrow's client, with the keys that are valid now."""
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415 - folders need none of it

    keys, endpoint = access.credentials.keys(), urlsplit(access.endpoint)
    signing: dict[str, str | bool | None] = {"anonymous": True}
    if keys is not None:
        signing = {
            "access_key": keys.access_key,
            "secret_key": keys.secret_key.reveal(),
            "session_token": keys.session_token.reveal() if keys.session_token else None,
        }
    return S3FileSystem(
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc.removeprefix("" if access.path_style else f"{access.bucket}."),
        force_virtual_addressing=not access.path_style,
        region=access.region,
        tls_ca_file_path=access.ca_bundle,
        **signing,
    )


def local_path(path: str, folder: Path) -> Path | None:
    """The folder that a setting names, relative to the pipeline's; None when it is an object store's URL."""
    if "://" not in path:
        return folder / path
    parts = urlsplit(path)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


@contextmanager
def storage_errors(where: object) -> Iterator[None]:
    """A disk that is full, a folder that we may not write: one clear sentence instead of a trace."""
    try:
        yield
    except OSError as error:
        reason = masked(error.strerror or str(error))
        raise SinkUnreachable(
            f"cannot write to {where}: {reason}", hint="check the space, the permissions and the address"
        ) from error
