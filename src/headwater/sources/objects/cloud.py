"""Buckets of Google and containers of Azure as containers of objects: all of it by obstore.

It takes keys for paths. A key that is none (`a//b`, `..`, control characters) stops the listing, with its name, and a
slash at a key's end is not seen. S3 has a client of our own for that (docs/decisions/0013).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, SourceUnreachable
from headwater.sources.objects.columns import integers, listing_page
from headwater.sources.objects.container import ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.obstore_client import RETRY, cause_of, client_options, get, status_of
from headwater.sources.objects.s3_requests import Refusal
from headwater.sources.objects.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore import ObjectMeta
    from obstore.store import AzureStore, GCSStore

_GONE = ("NoSuchKey", "BlobNotFound")
_CHANGED = 412
_OF_ONE_OBJECT = ("AccessDenied", "BlobArchived")  # the others may well be readable
_NO_PATH = "object with invalid path"
_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class CloudBucket:
    """Keys are whole keys of the bucket. `min_age` is by this machine's clock: obstore does not hand on the server's."""

    scheme: str  # gs, az
    bucket: str
    selection: Selection
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # as obstore spells them; secrets among them
    page_size: int = 1000

    @property
    def address(self) -> str:
        return self.url(self.selection.below)

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{key}"

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        folder = self.selection.prefix.rpartition("/")[0]
        last = ""
        for found in self._pages(folder, start_after):
            last = self._ascending([last, *(each["path"] for each in found)])
            versions = [_version(each) for each in found]
            page = listing_page(
                [version.key for version in versions],
                [version.etag for version in versions],
                [version.size for version in versions],
                integers(version.modified for version in versions),
            )
            page = self.selection.keep(page, _now())
            if page.num_rows:
                yield page

    def of_any_age(self) -> CloudBucket:
        return replace(self, selection=replace(self.selection, min_age=0))

    def look(self, key: str) -> ObjectVersion | None:
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
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield from self._store.list(folder or None, offset=start_after, chunk_size=self.page_size)
        except (BaseError, OSError, ValueError) as error:
            raise self._unreachable("list objects", str(error)) from None

    def _read(self, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            return get(self._store, version, part)
        except (BaseError, OSError) as error:
            raise self._told(version, str(error)) from None

    def _head(self, key: str) -> ObjectVersion | None:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            return _version(self._store.head(key))
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._unreachable(f"look at {key!r}", str(error)) from None

    def _told(self, version: ObjectVersion, error: str) -> Exception:
        url = self.url(version.key)
        refusal = Refusal.of(status_of(error) or 0, error)
        if refusal.code in _GONE or (refusal.status == _CHANGED and self._head(version.key) is None):  # Azure tells 412
            return ObjectGone(f"{url} is no longer there")
        if refusal.status == _CHANGED:
            return ObjectChanged(f"{url} was changed since it was listed")
        if refusal.code in _OF_ONE_OBJECT:
            return ObjectRefused(f"{url}: {refusal.code}: {refusal.message}")
        return self._unreachable(f"read {version.key!r}", error)

    def _unreachable(self, what: str, error: str) -> SourceUnreachable:
        status = status_of(error)
        refusal = Refusal.of(status or 0, error)
        told = f"HTTP status {status}" if status else cause_of(error)
        if refusal.code:
            told = f"{refusal.code}: {refusal.message}"
        hint = "see whether the bucket's name and storage_options are right, and the store can be reached from here"
        if _NO_PATH in error:
            hint = "rename the object: here only keys that are paths can be read"
        return SourceUnreachable(f"{self.url('')}: {what}: {told}", hint=hint)

    def _ascending(self, keys: Sequence[str]) -> str:
        for before, after in pairwise(keys):
            if before >= after:
                raise SourceUnreachable(
                    f"{self.url('')}: list objects: the store lists {before!r} before {after!r}, which is not the order of their bytes",
                    hint="hierarchical namespaces of Azure cannot be watched; use a container without one",
                )
        return keys[-1]

    @cached_property
    def _store(self) -> GCSStore | AzureStore:
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import AzureStore, GCSStore  # noqa: PLC0415

        http = any(value.startswith("http:") for value in self.options.values()) or "use_emulator" in self.options
        kind = GCSStore if self.scheme == "gs" else AzureStore
        try:
            return kind(
                self.bucket,
                config=dict(self.options),  # type: ignore[arg-type]
                client_options=client_options(allow_http=http),
                retry_config=RETRY,
            )
        except (BaseError, ValueError) as error:
            raise InputError(
                f"{self.url('')}: the store's client refuses its settings: {cause_of(str(error))}",
                hint="see storage_options; obstore's documentation names them",
            ) from None

    def __reduce__(self) -> tuple[object, ...]:
        # Without connections: a task makes its own.
        return (CloudBucket, (self.scheme, self.bucket, self.selection, self.options, self.page_size))


def _version(found: ObjectMeta) -> ObjectVersion:
    # Whole seconds: a listing may be finer than an object's own headers, and the two must not differ.
    modified = int(found["last_modified"].timestamp()) * _MICROSECONDS
    return ObjectVersion(found["path"], (found["e_tag"] or "").strip('"'), found["size"], modified)


def _now() -> int:
    return time.time_ns() // 1000
