"""The splits of a window: many small objects, one, or a piece of a large one, by the decoder of its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headwater.model.errors import SourceUnreachable
from headwater.model.rows import OnReject
from headwater.sources.objects.content import (
    PREVIEW_BYTES,
    Content,
    ListedObject,
    ObjectFailed,
    ObjectFile,
    ReadSettings,
    fetch_objects,
    object_reject,
    raise_reject,
    row_reject,
    unpack,
)
from headwater.sources.objects.formats.base import (
    Decoded,
    DecodedRows,
    Decoder,
    LineDecoder,
    chunks,
    merge_small,
    strip_bom,
)
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion, texts
from headwater.storage.spill import Spill


@dataclass(frozen=True)
class ObjectsSplit:
    """Every read returns exactly the rows of its objects, while the objects stay as listed."""

    objects: bytes = field(repr=False)  # packed (`content.pack`)
    count: int
    size: int  # bytes, as they are stored
    rows: int | None
    read_settings: ReadSettings = field(repr=False)
    container: Container = field(repr=False)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        objects = list(unpack(self.objects))
        reader = ObjectsReader(self.read_settings, self.container, on_reject or raise_reject)
        if objects and objects[0].piece is not None:
            return reader.piece(objects[0])
        return reader.read_objects(objects)


class ObjectsReader:
    """Reads objects for one task."""

    def __init__(self, read_settings: ReadSettings, container: Container, on_reject: OnReject) -> None:
        self._read_settings, self._container, self._on_reject = read_settings, container, on_reject
        self._decoder: Decoder = open_decoder(read_settings)

    def read_objects(self, objects: Sequence[ListedObject]) -> Iterator[pa.RecordBatch]:
        """Each object is decoded completely before its first row is yielded."""
        batch: list[ListedObject] = []
        contents: list[Content] = []
        size = 0
        settings, tuning = self._read_settings, self._read_settings.tuning
        for listed, content in fetch_objects(self._container, objects, settings.compression, tuning):
            if isinstance(content, ObjectFailed):
                self._fail(listed, content)
            elif len(content) > tuning.large_bytes:
                yield from self._large(listed, content)
            else:
                batch.append(listed)
                contents.append(content)
                size += len(content)
                if size >= tuning.decode_bytes:
                    yield from self._emit(batch, self._decoder.decode(contents), contents)
                    batch, contents, size = [], [], 0
        if batch:
            yield from self._emit(batch, self._decoder.decode(contents), contents)

    def piece(self, listed: ListedObject) -> Iterator[pa.RecordBatch]:
        """A piece of an object whose other pieces belong to other tasks: it cannot fail alone.

        Planning has seen the object as it was listed. If it changes while tasks read it, all of them stop; the next
        attempt notices the change before it begins, and continues without the object.
        """
        url = self._container.url(listed.version.key)
        try:
            for decoded in read_piece(self._container, listed, self._read_settings):
                yield from self._emit([listed], decoded, [b""])
        except (ObjectGone, ObjectChanged, ObjectRefused, ObjectFailed) as error:
            raise SourceUnreachable(
                f"{url} changed while it was being read: {error}", hint="run again: a later window reads the object"
            ) from error

    def _large(self, listed: ListedObject, content: Content) -> Iterator[pa.RecordBatch]:
        rejected, spill = (
            Decoded(),
            Spill(self._read_settings.schema, memory_bytes=self._read_settings.tuning.memory_bytes),
        )
        try:
            for decoded in self._decoder.pieces(content):
                rejected.bad += decoded.bad
                for part in decoded.parts:
                    spill.add(with_metadata(self._read_settings, self._container, [listed], part))
        except ObjectFailed as failed:
            self._fail(listed, failed, content)
            return
        yield from self._emit([listed], rejected, [content])
        yield from spill.batches()

    def _emit(
        self, objects: Sequence[ListedObject], decoded: Decoded, contents: Sequence[Content]
    ) -> Iterator[pa.RecordBatch]:
        for owner, failed in decoded.failed.items():
            self._fail(objects[owner], failed, contents[owner])
        for bad in decoded.bad:
            listed = objects[bad.owner]
            self._on_reject(
                row_reject(self._read_settings.stream, self._container.url(listed.version.key), listed, bad)
            )
        for part in merge_small(decoded.parts):
            yield with_metadata(self._read_settings, self._container, objects, part)

    def _fail(self, listed: ListedObject, failed: ObjectFailed, content: Content = b"") -> None:
        self._on_reject(
            object_reject(
                self._read_settings, self._container.url(listed.version.key), listed, failed, content[:PREVIEW_BYTES]
            )
        )


_LINE_END_BYTES = 64 << 10  # read first to find the end of a piece's last line

# (url, etag) → (offset, lines before it). A task continues the count of the previous task in its process.
_line_counts: dict[tuple[str, str], tuple[int, int]] = {}


def read_piece(container: Container, listed: ListedObject, read_settings: ReadSettings) -> Iterator[Decoded]:
    """Raises ObjectGone, ObjectChanged."""
    if read_settings.format == "parquet":
        return _row_groups(container, listed, read_settings)
    return _lines(container, listed, read_settings)


def _row_groups(container: Container, listed: ListedObject, read_settings: ReadSettings) -> Iterator[Decoded]:
    from headwater.sources.objects.formats.parquet import ParquetObject, ParquetObjects

    begin, end = listed.piece or (0, 0)
    file = ParquetObject(pa.PythonFile(ObjectFile(container, listed.version), mode="r"))
    return ParquetObjects(read_settings.content).groups(file, begin, end)


def _lines(container: Container, listed: ListedObject, read_settings: ReadSettings) -> Iterator[Decoded]:
    begin, end = listed.piece or (0, listed.version.size)
    decode, before = open_lines(read_settings), 0
    first, lines = lines_between(container, listed.version, begin, end)
    for chunk in chunks(lines):
        decoded = decode(chunk if first or before else strip_bom(chunk))
        # Only rejects need line numbers: an object whose rows need them is not cut.
        yield (
            decoded.shift_numbers(before + _count_lines(container, listed.version, first, read_settings.tuning))
            if decoded.bad
            else decoded
        )
        before += chunk.count(b"\n")


def lines_between(container: Container, version: ObjectVersion, begin: int, end: int) -> tuple[int, bytes]:
    """Where the first line begins, and all lines that begin at `begin` or later and before `end`."""
    data = container.fetch_range(version, max(begin - 1, 0), end)
    if begin:
        newline = data.find(b"\n")
        if newline < 0:
            return end, b""
        data = data[newline + 1 :]
        begin += newline
    return begin, data if not data or data.endswith(b"\n") else data + _rest(container, version, end)


def _rest(container: Container, version: ObjectVersion, end: int) -> bytes:
    """The rest of the line that `end` cuts."""
    chunks, step = [], _LINE_END_BYTES
    while end < version.size:
        data = container.fetch_range(version, end, min(end + step, version.size))
        newline = data.find(b"\n") + 1
        chunks.append(data[:newline] if newline else data)
        if newline:
            break
        end, step = end + len(data), min(step * 2, DEFAULT.range_bytes)
    return b"".join(chunks)


def _count_lines(container: Container, version: ObjectVersion, offset: int, tuning: Tuning) -> int:
    """The lines before an offset."""
    key = (container.url(version.key), version.etag)
    at, lines = _line_counts.get(key, (0, 0))
    if at > offset:
        at, lines = 0, 0
    while at < offset:
        data = container.fetch_range(version, at, min(at + tuning.range_bytes, offset))
        lines += data.count(b"\n")
        at += len(data)
    _line_counts.clear()
    _line_counts[key] = (at, lines)
    return lines


def with_metadata(
    read_settings: ReadSettings, container: Container, objects: Sequence[ListedObject], part: DecodedRows
) -> pa.RecordBatch:
    """The rows with the metadata columns of their objects: the stream's schema."""
    owners = [objects[owner].version for owner in part.owners.tolist()] if read_settings.metadata else []
    columns = [part.rows.column(index) for index in range(len(read_settings.content))]
    for name, _ in read_settings.metadata:
        match name:
            case "url":
                columns.append(_repeat([container.url(owner.key) for owner in owners], part.counts))
            case "etag":
                columns.append(_repeat([owner.etag for owner in owners], part.counts))
            case "modified":
                modified = np.repeat(np.array([owner.modified for owner in owners], np.int64), part.counts)
                columns.append(pa.array(modified).cast(pa.timestamp("us", "UTC")))
            case "row":
                columns.append(pa.array(part.row_numbers(), pa.int64()))
    return pa.RecordBatch.from_arrays(columns, schema=read_settings.schema)


def _repeat(values: Sequence[str], counts: np.ndarray) -> pa.Array:
    """Each value once per row of its object."""
    numbers = np.repeat(np.arange(len(values)), counts)
    return texts(values).take(pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]))


# Without columns a batch has no length; rows count even before a column is inferred.
_NO_COLUMN = pa.schema([pa.field("", pa.string())])


def open_decoder(read_settings: ReadSettings) -> Decoder:  # noqa: PLR0911 - one case per format is the clearest form
    """For one task; imports only what its format needs."""
    schema = decoder_schema(read_settings)
    match read_settings.format:
        case "json":
            from headwater.sources.objects.formats.json import JsonObjects

            return JsonObjects(schema, read_settings.json_as)
        case "csv":
            from headwater.sources.objects.formats.csv import CsvObjects

            return CsvObjects(schema, read_settings.csv, declared=read_settings.declared, tuning=read_settings.tuning)
        case "text":
            from headwater.sources.objects.formats.plain import TextObjects

            return TextObjects(schema)
        case "parquet":
            from headwater.sources.objects.formats.parquet import ParquetObjects

            return ParquetObjects(schema)
        case "avro":
            from headwater.sources.objects.formats.avro import AvroObjects

            return AvroObjects(schema)
        case "debezium":
            from headwater.sources.objects.formats.debezium import EventObjects

            assert read_settings.events is not None  # noqa: S101 - made with the format
            return EventObjects(read_settings.events, read_settings.json_as)
        case _:
            from headwater.sources.objects.formats.plain import BinaryObjects

            return BinaryObjects(schema)


def decoder_schema(read_settings: ReadSettings) -> pa.Schema:
    return read_settings.content if len(read_settings.content) else _NO_COLUMN


def open_lines(read_settings: ReadSettings) -> Callable[[bytes], Decoded]:
    """A decoder of lines from the middle of an object."""
    decoder = open_decoder(replace(read_settings, json_as="lines"))
    assert isinstance(decoder, LineDecoder)  # noqa: S101 - only such objects are cut
    return decoder.lines
