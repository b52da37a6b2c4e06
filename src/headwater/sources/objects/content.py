"""The objects of a task: their list, how to read them, their content, and the rejects of those that fail.

The list of a split is packed as compressed Arrow: Spark sends all splits of a window to every task, so an object must
cost little until its task unpacks it. Objects that fail are retried; single rows are rejects (G8).

Content is fetched and decompressed whole: into memory, or into a temporary file where it is large. Bad compression is
detected here, before the object has a row.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.config.sources.objects import CsvSettings, ObjectMetadata, ObjectsSourceSettings
from headwater.model.errors import RunError, ValueNotKept
from headwater.model.position.marks import Json
from headwater.model.position.stream_state import Columns, StreamState
from headwater.model.rows import Reject
from headwater.sources import ddl_schema
from headwater.sources.json.columns import ddl_of
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion

if TYPE_CHECKING:
    from headwater.sources.debezium.decoder import EventFormat

LISTED_COLUMNS = ("key", "etag", "size", "modified", "tries")


@dataclass(frozen=True)
class ListedObject:
    """An object, or a piece of one that is too large for a task."""

    version: ObjectVersion
    tries: int = 0  # of this version so far
    piece: tuple[int, int] | None = None  # begin and end: bytes of lines, row groups of Parquet


def pack(objects: pa.Table) -> bytes:
    """`objects` are bookmarks; pieces have `begin` and `end` too."""
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, objects.schema, options=options) as writer:
        writer.write_table(objects.combine_chunks())
    return bytes(stream.getvalue())


def unpack(data: bytes) -> Iterator[ListedObject]:
    table = pa.ipc.open_stream(data).read_all()
    pieces = (
        zip(*(table[name].to_pylist() for name in ("begin", "end")), strict=True)
        if "begin" in table.schema.names
        else None
    )
    for key, etag, size, modified, tries in zip(*(table[name].to_pylist() for name in LISTED_COLUMNS), strict=True):
        yield ListedObject(ObjectVersion(key, etag, size, modified), tries, next(pieces) if pieces else None)


METADATA_TYPES: Mapping[ObjectMetadata, pa.DataType] = {
    "url": pa.string(),
    "etag": pa.string(),
    "modified": pa.timestamp("us", "UTC"),
    "row": pa.int64(),
}
_PLAIN_TYPES = {"text": pa.string(), "binary": pa.binary()}


@dataclass(frozen=True)
class ReadSettings:
    """Frozen and picklable: each split carries it."""

    stream: str
    format: str
    content: pa.Schema  # the columns of the objects' content
    metadata: tuple[tuple[ObjectMetadata, str], ...]  # field of an object → name of its column
    declared: bool = True  # by `schema`; False: inferred
    json_as: str = "auto"
    csv: CsvSettings = field(default_factory=CsvSettings)
    compression: str = "auto"
    tries: int = 1  # of an object before it is rejected
    split_bytes: int = 256_000_000
    events: EventFormat | None = None  # for debezium
    tuning: Tuning = DEFAULT

    @classmethod
    def of(
        cls, settings: ObjectsSourceSettings, known: StreamState, stream: str, tuning: Tuning = DEFAULT
    ) -> ReadSettings:
        """`known`: what was inferred, for settings without a schema."""
        events = _event_format(settings, known, stream) if settings.format == "debezium" else None
        return cls(
            stream=stream,
            format=settings.format,
            content=events.schema if events else _content_schema(settings, known.columns),
            metadata=tuple(settings.metadata_columns.items()),
            declared=settings.schema is not None,
            json_as=settings.json_as,
            csv=settings.csv,
            compression=settings.compression,
            tries=settings.tries,
            split_bytes=settings.split_bytes,
            events=events,
            tuning=tuning,
        )

    @property
    def schema(self) -> pa.Schema:
        """The content's columns, then the metadata's."""
        metadata = [pa.field(column, METADATA_TYPES[name], nullable=False) for name, column in self.metadata]
        return pa.schema([*self.content, *metadata])


def _event_format(settings: ObjectsSourceSettings, known: StreamState, stream: str) -> EventFormat:
    from headwater.sources.debezium.decoder import EventFormat

    table = pa.schema([])
    if settings.schema or known.columns:
        table = ddl_schema.schema_of(settings.schema or ddl_of(known.columns))
    nullable = pa.schema([field.with_nullable(True) for field in table])  # noqa: FBT003 - Arrow's own signature
    return EventFormat(stream, nullable, known.key, settings.schema is not None, settings.debezium)


def _content_schema(settings: ObjectsSourceSettings, columns: Columns) -> pa.Schema:
    if settings.format in _PLAIN_TYPES:
        return pa.schema([pa.field("value", _PLAIN_TYPES[settings.format])])
    if settings.schema is not None:
        return ddl_schema.schema_of(settings.schema)
    return ddl_schema.schema_of(ddl_of(columns)) if columns else pa.schema([])


PREVIEW_BYTES = 1_000  # of an object in its reject


class ObjectFailed(Exception):
    """Why an object yields no rows; `preview` is its beginning, if that differs from its content's."""

    def __init__(self, reason: str, preview: bytes = b"") -> None:
        super().__init__(reason)
        self.reason, self.preview = reason, bytes(preview[:PREVIEW_BYTES])


class ObjectStale(ObjectFailed):
    """The object was deleted or changed since it was listed: its content is not at fault."""


@dataclass(frozen=True)
class BadRow:
    """A row that does not fit the schema."""

    owner: int  # index of its object among those decoded together
    number: int  # of the row in its object, from 1
    reason: str
    payload: bytes
    more: Mapping[str, Json] = field(default_factory=dict)


def object_reject(
    read_settings: ReadSettings, url: str, listed: ListedObject, failed: ObjectFailed, beginning: bytes = b""
) -> Reject:
    """For a whole object. While it will be retried, it does not land as a reject."""
    return Reject(
        read_settings.stream,
        {"object": url, "etag": listed.version.etag},
        failed.reason,
        failed.preview or beginning,
        {**version_details(listed), "tries": listed.tries},
        part=listed.version.key,
        again=isinstance(failed, ObjectStale) or listed.tries + 1 < read_settings.tries,
    )


def row_reject(stream: str, url: str, listed: ListedObject, row: BadRow) -> Reject:
    """For one row of a readable object."""
    location: dict[str, str | int] = {"object": url, "row": row.number}
    return Reject(stream, location, row.reason, row.payload, {**version_details(listed), **row.more})


def version_details(listed: ListedObject) -> dict[str, Json]:
    """The version of the object, for a replay."""
    version = listed.version
    return {"key": version.key, "etag": version.etag, "size": version.size, "modified": version.modified}


def raise_reject(reject: Reject) -> None:
    """For readers without a collector of rejects."""
    url = reject.location["object"]
    if reject.part:
        raise RunError(f"{url}: {reject.reason}", hint="correct the object, or allow rejects (max_rejects)")
    where = ", ".join(f"{name} {value}" for name, value in reject.location.items() if name != "object")
    raise ValueNotKept(f"{url}, {where}: {reject.reason}", hint="allow rejects (max_rejects), or change the schema")


Content = bytes | mmap.mmap

_ENDINGS = {".gz": "gzip", ".zst": "zstd"}


def fetch_object(container: Container, version: ObjectVersion, compression: str, tuning: Tuning = DEFAULT) -> Content:
    """Raises ObjectFailed for this object, SourceUnreachable when the store does not answer."""
    codec = compression_of(version.key, compression)
    try:
        data = _fetch_stored(container, version, tuning)
    except ObjectGone as gone:
        raise ObjectStale(f"deleted since it was listed ({gone})") from gone
    except ObjectChanged as changed:
        raise ObjectStale(f"changed since it was listed ({changed})") from changed
    except ObjectRefused as refused:
        raise ObjectFailed(f"refused by the store ({refused})") from refused
    if len(data) != version.size:
        raise ObjectStale(f"{len(data):,} bytes received, {version.size:,} listed", data[:PREVIEW_BYTES])
    return _decompress(data, codec, tuning) if codec and data else data


def compression_of(key: str, compression: str) -> str | None:
    """`gzip`, `zstd`, or None."""
    if compression == "auto":
        return _ENDINGS.get(key[key.rfind(".") :].lower())
    return None if compression == "none" else compression


def buffer(chunks: Iterator[bytes], memory_bytes: int = DEFAULT.memory_bytes) -> Content:
    """All chunks as one content: in memory, or mapped from a file."""
    buffered, size = [], 0
    for chunk in chunks:
        buffered.append(chunk)
        size += len(chunk)
        if size > memory_bytes:
            return _map_file(buffered, chunks)
    return buffered[0] if len(buffered) == 1 else b"".join(buffered)


def _map_file(buffered: list[bytes], chunks: Iterator[bytes]) -> Content:
    # The file has no name; it vanishes with the mapping.
    with tempfile.TemporaryFile(prefix="headwater-") as file:
        file.writelines(buffered)
        buffered.clear()
        file.writelines(chunks)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _fetch_stored(container: Container, version: ObjectVersion, tuning: Tuning) -> Content:
    if version.size <= tuning.memory_bytes:
        return container.fetch(version)
    step = tuning.range_bytes
    begins = range(0, version.size, step)
    ranges = (container.fetch_range(version, begin, min(begin + step, version.size)) for begin in begins)
    return buffer(ranges, tuning.memory_bytes)


def _decompress(data: Content, codec: str, tuning: Tuning) -> Content:
    stream = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec)
    try:
        return buffer(iter(lambda: stream.read(tuning.range_bytes), b""), tuning.memory_bytes)
    except OSError as error:
        raise ObjectFailed(f"bad {codec}: {error}", data[:PREVIEW_BYTES]) from None


_PARALLEL_REQUESTS = 16  # a store answers many as fast as one
_PREFETCH_BYTES = 64 << 20

FetchedObject = tuple[ListedObject, Content | ObjectFailed]


def fetch_objects(
    container: Container, objects: Sequence[ListedObject], compression: str, tuning: Tuning = DEFAULT
) -> Iterator[FetchedObject]:
    """Each object with its content, or with the reason of its failure."""

    def fetch(listed: ListedObject) -> Content | ObjectFailed:
        try:
            return fetch_object(container, listed.version, compression, tuning)
        except ObjectFailed as failed:
            return failed

    if container.address.startswith("file:"):
        # A disk answers sooner than a thread starts.
        return ((listed, fetch(listed)) for listed in objects)
    return _fetch_in_threads(fetch, objects)


def _fetch_in_threads(
    fetch: Callable[[ListedObject], Content | ObjectFailed], objects: Sequence[ListedObject]
) -> Iterator[FetchedObject]:
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as threads:
        prefetched: deque[tuple[ListedObject, Future[Content | ObjectFailed]]] = deque()
        size = 0
        for listed in objects:
            while prefetched and (
                len(prefetched) >= 2 * _PARALLEL_REQUESTS or size + listed.version.size > _PREFETCH_BYTES
            ):
                first, future = prefetched.popleft()
                size -= first.version.size
                yield first, future.result()
            prefetched.append((listed, threads.submit(fetch, listed)))
            size += listed.version.size
        for first, future in prefetched:
            yield first, future.result()


_MIN_REQUEST_BYTES = 64 << 10  # footers and small columns arrive with one request


class ObjectFile(io.RawIOBase):
    """An object as a file, for random access. Reads raise ObjectGone, ObjectChanged, SourceUnreachable."""

    def __init__(self, container: Container, version: ObjectVersion) -> None:
        self._container, self._version = container, version
        self._position = 0
        self._begin, self._buffer = 0, b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._version.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = self._version.size if size is None or size < 0 else min(self._position + size, self._version.size)
        if self._position >= end:
            return b""
        if not self._begin <= self._position <= end <= self._begin + len(self._buffer):
            # Read on after the wanted bytes; at the end of the object, where footers are, before them.
            begin = min(self._position, max(self._version.size - _MIN_REQUEST_BYTES, 0))
            if end - begin > 2 * _MIN_REQUEST_BYTES:
                begin = self._position
            stop = min(max(end, begin + _MIN_REQUEST_BYTES), self._version.size)
            self._buffer, self._begin = self._container.fetch_range(self._version, begin, stop), begin
        data = self._buffer[self._position - self._begin : end - self._begin]
        self._position = end
        return data
