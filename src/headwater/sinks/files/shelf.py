"""Where whole files are put under names of their own: a local folder, or a bucket.

What is there already with the same content is left as it is, so that whoever watches the place sees one version.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.model.errors import PublishConflict, SettingsError, SinkUnreachable
from headwater.model.secret import masked
from headwater.sinks.files.durable import durable_folder, sync_folder
from headwater.sinks.files.places import local_path

if TYPE_CHECKING:
    from headwater.config.s3 import S3Settings


class Shelf(Protocol):
    """Takes files one by one; several threads may put different ones."""

    def put(self, name: str, content: Path) -> str | None:
        """None: it is there, durable and visible, now or since before. Else the version of what has that name instead."""

    def replace(self, name: str, content: Path, version: str) -> None:
        """Put it in place of that version. Raises PublishConflict where another one stands there by now."""

    def where(self, name: str) -> str:
        """For people."""


@dataclass(frozen=True)
class FolderShelf:
    """A folder on a disk."""

    folder: Path

    def put(self, name: str, content: Path) -> str | None:
        target = self.folder / name
        durable_folder(target.parent)
        with _scratch(target, content) as scratch:
            try:
                os.link(scratch, target)  # fails where a rename would replace
            except FileExistsError:
                return None if filecmp.cmp(target, content, shallow=False) else _version(target)
        sync_folder(target.parent)
        return None

    def replace(self, name: str, content: Path, version: str) -> None:
        target = self.folder / name
        with _scratch(target, content) as scratch:
            if _version(target) != version:
                raise _changed(str(target))
            scratch.replace(target)
        sync_folder(target.parent)

    def where(self, name: str) -> str:
        return str(self.folder / name)


@contextmanager
def _scratch(target: Path, content: Path) -> Iterator[Path]:
    """The content beside its target, durable, under a name that no reader looks at."""
    scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        shutil.copyfile(content, scratch)
        with scratch.open("rb+") as file:
            os.fsync(file.fileno())
        yield scratch
    finally:
        scratch.unlink(missing_ok=True)


def _version(file: Path) -> str:
    found = file.stat()
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"


def _changed(where: str) -> PublishConflict:
    return PublishConflict(
        f"{where} was written by somebody else while we were about to replace it", hint="the next cycle tries again"
    )


class BucketShelf:
    """A prefix of a bucket."""

    def __init__(self, url: str, store: Any, prefix: str) -> None:
        self._url, self._store, self._prefix = url.rstrip("/"), store, prefix.strip("/")

    def put(self, name: str, content: Path) -> str | None:
        from obstore.exceptions import AlreadyExistsError  # noqa: PLC0415 - folders need none of it

        data = content.read_bytes()
        with self._refusals():
            try:
                self._store.put(self._key(name), data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                there = self._store.get(self._key(name))
                return None if bytes(there.bytes()) == data else str(there.meta["e_tag"])
        return None

    def replace(self, name: str, content: Path, version: str) -> None:
        from obstore.exceptions import PreconditionError  # noqa: PLC0415

        with self._refusals():
            try:
                self._store.put(self._key(name), content.read_bytes(), mode={"e_tag": version}, use_multipart=False)
            except PreconditionError:
                raise _changed(self.where(name)) from None

    def where(self, name: str) -> str:
        return masked(f"{self._url}/{name}")

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".lstrip("/")

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except (BaseError, OSError) as error:
            raise self._refused(str(error)) from None

    def _refused(self, text: str) -> SinkUnreachable:
        """Without the server's whole answer, which may repeat credentials (G11)."""
        from headwater.sources.objects.obstore_client import cause_of, status_of  # noqa: PLC0415
        from headwater.sources.objects.s3_requests import Refusal  # noqa: PLC0415

        status = status_of(text)
        if status is None:
            reason, hint = cause_of(text), "see whether the server runs at this endpoint and can be reached from here"
        else:
            refusal = Refusal.of(status, text)
            reason = f"{refusal.code}: {refusal.message}" if refusal.code else f"HTTP status {status}"
            hint = "see whether endpoint, region, bucket and credentials fit together, and may write (s3:PutObject)"
        return SinkUnreachable(f"cannot write to {masked(self._url)}: {reason}", hint=hint)


def open_shelf(path: str, folder: Path, s3: S3Settings) -> Shelf:
    """What the sink's path names; without a scheme it is taken from `folder`. Asks nobody yet."""
    local = local_path(path, folder)
    if local is not None:
        return FolderShelf(local)
    scheme, _, rest = path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme == "s3" and bucket:
        from headwater.sources.objects.s3_access import find_access  # noqa: PLC0415 - folders need none of it
        from headwater.sources.objects.s3_reading import s3_store  # noqa: PLC0415

        return BucketShelf(path, s3_store(find_access(bucket, s3)), prefix)
    raise SettingsError(
        f"{masked(path)} is no place that files with layout: connect can be put into",
        hint="write a folder, or s3://bucket/folder",
    )
