"""A bucket of S3, or of a server that speaks its protocol, as a container of objects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.sources.objects.container import ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.objects.s3_reading import S3Reader
    from headwater.sources.objects.s3_requests import Refusal, S3Requests

# What a client that takes a key for a path reads as another key, or refuses.
_NO_PATH = re.compile(r"^/|/$|//|(^|/)\.\.?(/|$)|[\x00-\x1f\x7f]")
_GONE, _CHANGED = ("NoSuchKey", "NoSuchVersion"), 412
_OF_ONE_OBJECT = ("AccessDenied", "InvalidObjectState", "KMS.")  # the others may well be readable


@dataclass(frozen=True)
class Bucket:
    """Keys are whole keys of the bucket. `min_age` is by the server's clock, as its answers show it."""

    access: S3Access
    selection: Selection
    page_size: int = 1000

    @property
    def address(self) -> str:
        return self.url(self.selection.below)

    def url(self, key: str) -> str:
        return f"s3://{self.access.bucket}/{key}"

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        from headwater.sources.objects.s3_listing import list_pages  # noqa: PLC0415 - tasks only read

        return list_pages(self._requests, self.access, self.selection, start_after, self.page_size)

    def of_any_age(self) -> Bucket:
        return replace(self, selection=replace(self.selection, min_age=0))

    def look(self, key: str) -> ObjectVersion | None:
        from headwater.sources.objects.s3_listing import list_one  # noqa: PLC0415

        return list_one(self._requests, self.access, self.selection, key) if self.selection.includes(key) else None

    def fetch(self, version: ObjectVersion) -> bytes:
        return self._read(version, None)

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        end = min(end, version.size)
        return self._read(version, (start, end)) if start < end else b""

    def _read(self, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
        from headwater.sources.objects.s3_requests import Refusal  # noqa: PLC0415 - loaded with the client

        try:
            if _NO_PATH.search(version.key):
                return self._requests.read(version, part)
            return self._reader.read(version, part)
        except Refusal as refusal:
            raise self._told(version, refusal) from None

    def _told(self, version: ObjectVersion, refusal: Refusal) -> Exception:
        url = self.url(version.key)
        if refusal.code in _GONE:
            return ObjectGone(f"{url} is no longer there")
        if refusal.status == _CHANGED:
            return ObjectChanged(f"{url} was changed since it was listed")
        if refusal.code.startswith(_OF_ONE_OBJECT):
            return ObjectRefused(f"{url}: {refusal.code}: {refusal.message}")
        return refusal.unreachable(self.access, f"read {version.key!r}")

    @cached_property
    def _requests(self) -> S3Requests:
        from headwater.sources.objects.s3_requests import S3Requests  # noqa: PLC0415

        return S3Requests(self.access)

    @cached_property
    def _reader(self) -> S3Reader:
        from headwater.sources.objects.s3_reading import S3Reader  # noqa: PLC0415

        return S3Reader(self.access)

    def __reduce__(self) -> tuple[object, ...]:
        # Without connections: a task makes its own.
        return (Bucket, (self.access, self.selection, self.page_size))
