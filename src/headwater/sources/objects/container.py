"""What the source needs of a bucket or a folder: to list it, and to read one version of an object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of a listing; `modified` in microseconds since 1970, UTC.
LISTING_COLUMNS = {"key": "string", "etag": "string", "size": "int64", "modified": "int64"}


@dataclass(frozen=True)
class ObjectVersion:
    """An object as a listing showed it."""

    key: str  # in a bucket: the whole key. In a folder: the path below it
    etag: str
    size: int
    modified: int  # microseconds since 1970, UTC


class ObjectGone(Exception):
    """The object is no longer there."""


class ObjectChanged(Exception):
    """It is there, but no longer the version that was listed: the next listing shows the new one."""


class ObjectRefused(Exception):
    """It is there, but the store does not give it: archived, encrypted with another's key, or not for these credentials."""


class Container(Protocol):
    """A bucket's prefix, or a folder. Picklable, `repr` without secrets (G11): tasks carry it along.

    Raises SourceUnreachable where the store does not answer, and InputError where the settings are wrong.
    """

    @property
    def address(self) -> str:
        """Its url, without secrets."""

    def url(self, key: str) -> str:
        """The object's own url, as a person would write it: `s3://bucket/a b.json`, nothing escaped."""

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        """What the settings' patterns select, as LISTING_COLUMNS, strictly ascending by the keys' UTF-8 bytes."""

    def look(self, key: str) -> ObjectVersion | None:
        """One object as a listing would show it; None: there is none, or the patterns do not select it."""

    def of_any_age(self) -> Container:
        """The same without `min_age`: what is too young to be read is there all the same."""

    def fetch(self, version: ObjectVersion) -> bytes:
        """Its whole content. Raises ObjectGone, ObjectChanged, ObjectRefused."""

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`."""
