"""Where whole files are put under names of their own: a local folder, or a bucket.

What is there already with the same content is left as it is, so that whoever watches the place sees one version.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.model.errors import SettingsError, SinkUnreachable
from headwater.model.secret import masked
from headwater.sinks.files.durable import durable_folder, sync_folder
from headwater.sinks.files.places import local_path

if TYPE_CHECKING:
    from headwater.config.s3 import S3Settings


class Shelf(Protocol):
    """Takes files one by one; several threads may put different ones."""

    def put(self, name: str, content: Path) -> None:
        """Durable and visible when it returns; replaces what has that name, unless it is the same."""

    def where(self, name: str) -> str:
        """For people."""


@dataclass(frozen=True)
class FolderShelf:
    """A folder on a disk."""

    folder: Path

    def put(self, name: str, content: Path) -> None:
        target = self.folder / name
        durable_folder(target.parent)
        if target.exists() and filecmp.cmp(target, content, shallow=False):
            return
        scratch = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
        try:
            shutil.copyfile(content, scratch)
            with scratch.open("rb+") as file:
                os.fsync(file.fileno())
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)
        sync_folder(target.parent)

    def where(self, name: str) -> str:
        return str(self.folder / name)


class BucketShelf:
    """A prefix of a bucket."""

    def __init__(self, url: str, store: Any, prefix: str) -> None:
        self._url, self._store, self._prefix = url.rstrip("/"), store, prefix.strip("/")

    def put(self, name: str, content: Path) -> None:
        from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError  # noqa: PLC0415

        key, data = f"{self._prefix}/{name}".lstrip("/"), content.read_bytes()
        try:
            try:
                self._store.put(key, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, NotSupportedError):
                if self._content(key) != data:
                    self._store.put(key, data, use_multipart=False)
        except (BaseError, OSError) as error:
            raise self._refused(str(error)) from None

    def _content(self, key: str) -> bytes | None:
        from obstore.exceptions import NotFoundError  # noqa: PLC0415

        try:
            return bytes(self._store.get(key).bytes())
        except (NotFoundError, FileNotFoundError):
            return None

    def where(self, name: str) -> str:
        return masked(f"{self._url}/{name}")

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
