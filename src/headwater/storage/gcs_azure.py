"""Google's buckets and Azure's containers, by obstore.

obstore treats keys as paths. A key that is not a path (`a//b`, `..`, control characters) stops the listing with its
name, and a slash at the end of a key is dropped. S3 has its own client for that reason (docs/decisions/0013).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, SourceUnreachable
from headwater.storage.container import (
    ObjectChanged,
    ObjectGone,
    ObjectRefused,
    ObjectVersion,
    Selection,
    integers,
    listing_page,
)
from headwater.storage.obstore_client import RETRY, cause_of, client_options, get, status_of
from headwater.storage.s3.client import ErrorResponse

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore

_MISSING = ("NoSuchKey", "BlobNotFound")
_CHANGED = 412
_ONE_OBJECT = ("AccessDenied", "BlobArchived")  # other objects may be readable
_NOT_A_PATH = "object with invalid path"
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class CloudBucket:
    """Keys are whole keys of the bucket. `min_age` uses this machine's clock: obstore does not return the server's."""

    scheme: str  # gs, az
    bucket: str
    selection: Selection
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # as obstore spells them; some are secrets
    page_size: int = 1000

    @property
    def address(self) -> str:
        return self.url(self.selection.root)

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}"

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        folder = self.selection.prefix.rpartition("/")[0]
        last = ""
        for objects in self._pages(folder, start_after):
            last = self._check_order([last, *(meta["path"] for meta in objects)])
            versions = [_version(meta) for meta in objects]
            page = listing_page(
                [version.key for version in versions],
                [version.etag for version in versions],
                [version.size for version in versions],
                integers(version.modified for version in versions),
            )
            page = self.selection.select(page, _now())
            if page.num_rows:
                yield page

    def without_min_age(self) -> CloudBucket:
        return replace(self, selection=replace(self.selection, min_age=0))

    def stat(self, key: str) -> ObjectVersion | None:
        version = self._head(key) if self.selection.includes(key) else None
        if version is None or (self.selection.min_age and version.modified > _now() - self.selection.min_age):
            return None
        return version

    def fetch(self, version: ObjectVersion) -> bytes:
        return self._read(version, None) if version.size else b""

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        end = min(end, version.size)
        return self._read(version, (start, end)) if start < end else b""

    def _pages(self, folder: str, start_after: str | None) -> Iterator[Sequence[ObjectMeta]]:
        from obstore.exceptions import BaseError

        try:
            yield from self._store.list(folder or None, offset=start_after, chunk_size=self.page_size)
        except (BaseError, OSError, ValueError) as error:
            raise self._unreachable("list objects", str(error)) from None

    def _read(self, version: ObjectVersion, byte_range: tuple[int, int] | None) -> bytes:
        from obstore.exceptions import BaseError

        try:
            return get(self._store, version, byte_range)
        except (BaseError, OSError) as error:
            raise self._error(version, str(error)) from None

    def _head(self, key: str) -> ObjectVersion | None:
        from obstore.exceptions import BaseError

        try:
            return _version(self._store.head(key))
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._unreachable(f"stat {key!r}", str(error)) from None

    def _error(self, version: ObjectVersion, error: str) -> Exception:
        url = self.url(version.key)
        response = ErrorResponse.of(status_of(error) or 0, error)
        # Azure answers 412 for a deleted object too.
        if response.code in _MISSING or (response.status == _CHANGED and self._head(version.key) is None):
            return ObjectGone(f"{url} was deleted")
        if response.status == _CHANGED:
            return ObjectChanged(f"{url} has changed since it was listed")
        if response.code in _ONE_OBJECT:
            return ObjectRefused(f"{url}: {response.code}: {response.message}")
        return self._unreachable(f"read {version.key!r}", error)

    def _unreachable(self, action: str, error: str) -> SourceUnreachable:
        status = status_of(error)
        response = ErrorResponse.of(status or 0, error)
        reason = f"HTTP status {status}" if status else cause_of(error)
        if response.code:
            reason = f"{response.code}: {response.message}"
        hint = "check the bucket's name and storage_options, and that the store can be reached from here"
        if _NOT_A_PATH in error:
            hint = "rename the object: in this store only keys that are paths can be read"
        return SourceUnreachable(f"{self.url('')}: {action}: {reason}", hint=hint)

    def _check_order(self, keys: Sequence[str]) -> str:
        for before, after in pairwise(keys):
            if before >= after:
                raise SourceUnreachable(
                    f"{self.url('')}: list objects: the store lists {before!r} before {after!r}, not in the order of their bytes",
                    hint="use a container without a hierarchical namespace",
                )
        return keys[-1]

    @cached_property
    def _store(self) -> GCSStore | AzureStore:
        return cloud_store(self.scheme, self.bucket, self.options)

    def __reduce__(self) -> tuple[object, ...]:
        # Without connections: a task makes its own.
        return (CloudBucket, (self.scheme, self.bucket, self.selection, self.options, self.page_size))


def cloud_store(scheme: str, bucket: str, options: Mapping[str, str]) -> GCSStore | AzureStore:
    """Obstore's client of one bucket; several threads may share it. Raises InputError."""
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore

    http = any(value.startswith("http:") for value in options.values()) or "use_emulator" in options
    client = GCSStore if scheme == "gs" else AzureStore
    try:
        return client(
            bucket,
            config=dict(options),  # type: ignore[arg-type]
            client_options=client_options(allow_http=http),
            retry_config=RETRY,
        )
    except (BaseError, ValueError) as error:
        raise InputError(
            f"{scheme}://{bucket}/: the store's client refuses its settings: {cause_of(str(error))}",
            hint="check storage_options; obstore's documentation lists them",
        ) from None


def _version(meta: ObjectMeta) -> ObjectVersion:
    # Whole seconds: a listing may be more precise than an object's headers, and the two must be equal.
    modified = int(meta["last_modified"].timestamp()) * _MICROSECONDS
    return ObjectVersion(meta["path"], (meta["e_tag"] or "").strip('"'), meta["size"], modified)


def _now() -> int:
    return time.time_ns() // 1000
