"""The rows of a window of objects, planned as splits, and of rejects that are replayed.

Small objects are planned together, large ones in pieces where their format allows.

| format | pieces |
| --- | --- |
| JSON lines, events, text, not compressed | ranges of bytes; none with row numbers in `metadata`: counting lines would read everything before |
| Parquet, not compressed | row groups |
| CSV | none: line breaks may be quoted, which only a reader from the beginning knows |
| JSON documents, Avro, binary, gzip, zstd | none |

Planning checks the version of an object before it cuts it: an object that fails as a whole fails here, before any
piece yields a row.

A replay reads rows from their payloads, whole objects from the container, in their current versions. Rejected rows of
Parquet and Avro have no payload; their object is read again. If it has changed since, a window of its own reads all
its rows, and the replay skips them. What still does not fit becomes the same reject again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.objects import CsvSettings, ObjectsSourceSettings
from headwater.model.bookmarks import BOOKMARK_COLUMNS
from headwater.model.position.marks import ObjectsMark
from headwater.model.rows import POSITION, Changes, Objects, OnReject, Reject, Rows, Split
from headwater.sources.objects.content import (
    LISTED_COLUMNS,
    ListedObject,
    ObjectFailed,
    ObjectFile,
    ReadSettings,
    compression_of,
    pack,
    raise_reject,
)
from headwater.sources.objects.formats.base import Decoded, concat_decoded, strip_bom
from headwater.sources.objects.formats.file_schema import file_columns
from headwater.sources.objects.formats.json import JsonObjects, is_lines
from headwater.sources.objects.splits import (
    ObjectsReader,
    ObjectsSplit,
    decoder_schema,
    open_decoder,
    read_piece,
    with_metadata,
)
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion


def window_rows(
    pages: Sequence[pa.Table],
    settings: ObjectsSourceSettings,
    container: Container,
    span: tuple[ObjectsMark, ObjectsMark],
    *,
    stream: str,
    cores: int,
    tuning: Tuning = DEFAULT,
) -> Rows:
    """The rows of a window's bookmarks; `span` is its start and its end."""
    start, end = span
    read_settings = ReadSettings.of(settings, end.state, stream, tuning)
    read = [page.filter(pc.equal(page["state"], "read")) for page in pages]
    rows = _rows(read_settings, plan_splits(iter(read), settings, container, read_settings, cores))
    if rows.objects is None or rows.changes is not None:
        return rows  # changes stay when their object is changed or deleted
    earlier = tuple(container.url(key) for page in pages for key in _earlier(page, start, settings))
    return replace(rows, objects=replace(rows.objects, earlier=earlier, part_prefix=container.url("")))


def _rows(read_settings: ReadSettings, splits: tuple[Split, ...]) -> Rows:
    """Rows that replace none of earlier windows."""
    metadata: dict[str, str] = dict(read_settings.metadata)
    objects = Objects(metadata["url"]) if "url" in metadata else None
    rows, events = (
        Rows(read_settings.stream, read_settings.schema, splits=splits, objects=objects),
        read_settings.events,
    )
    if events is None:
        return rows
    event_key = (metadata["url"], metadata["row"]) if metadata.keys() >= {"url", "row"} else ()
    changes = Changes(tuple(events.columns.names), event_key, metadata.get("modified", ""))
    return replace(rows, key=events.key, order=(POSITION,), changes=changes)


def _earlier(page: pa.Table, start: ObjectsMark, settings: ObjectsSourceSettings) -> list[str]:
    """Objects with rows in the sinks: of an earlier version, or of this version before a rewind."""
    again = pc.and_(pc.equal(page["state"], "read"), pc.less_equal(page["generation"], start.reached))
    landed = pc.or_(page["earlier"], again)
    if settings.deleted == "ignore":
        landed = pc.and_(landed, pc.equal(page["state"], "read"))
    return list(page["key"].filter(landed).to_pylist())


_SCHEMA = pa.schema([(name, BOOKMARK_COLUMNS[name]) for name in LISTED_COLUMNS])
_OPEN_COST_BYTES = 4_096  # what opening an object costs, in bytes of content
_MIN_SPLIT_BYTES = 8 << 20  # worth a task
_HEAD_BYTES = 1 << 20  # read to detect lines
_ESTIMATE_BYTES = 8 << 20  # of a split whose rows are estimated: only small windows need the number
_BYTES_PER_ROW = {"json": 50, "csv": 25, "text": 25, "avro": 20, "parquet": 4, "debezium": 400}
_COMPRESSION_RATIO = 10  # of text


def plan_splits(
    pages: Iterator[pa.Table],
    settings: ObjectsSourceSettings,
    container: Container,
    read_settings: ReadSettings,
    cores: int,
) -> tuple[Split, ...]:
    """The splits of a window; `pages` are its bookmarks in state `read`, by key. All cores get equal work."""
    selected = [page.select(list(LISTED_COLUMNS)).cast(_SCHEMA) for page in pages]
    objects = pa.concat_tables(selected).combine_chunks() if selected else _SCHEMA.empty_table()
    sizes = objects["size"].to_numpy()
    work = int(sizes.sum()) + _OPEN_COST_BYTES * len(sizes)
    read_settings = replace(read_settings, split_bytes=_split_bytes(work, settings, cores))
    large = np.flatnonzero(sizes > read_settings.split_bytes)
    pieces = {int(index): _pieces(objects.slice(index, 1), container, read_settings) for index in large}
    whole_objects = objects.take(
        np.setdiff1d(np.arange(len(objects)), [index for index, splits in pieces.items() if splits])
    )
    splits = [
        _split(group, container, read_settings)
        for group in group_objects(whole_objects, read_settings.split_bytes, cores)
    ]
    return (*splits, *(split for piece_splits in pieces.values() for split in piece_splits))


def _split_bytes(size: int, settings: ObjectsSourceSettings, cores: int) -> int:
    """Smaller for a window of one or two tasks, so that every core has work."""
    return min(settings.split_bytes, max(-(-size // cores), _MIN_SPLIT_BYTES))


def group_objects(objects: pa.Table, split_bytes: int, cores: int) -> list[pa.Table]:
    """Consecutive objects in groups of about equal work."""
    work = np.cumsum(objects["size"].to_numpy() + _OPEN_COST_BYTES)
    if not len(work):
        return []
    count = -(-int(work[-1]) // split_bytes)
    if count > 1:
        count = min(-(-count // cores) * cores, len(work))
    # An object belongs to the split that contains its middle.
    middles = work - (objects["size"].to_numpy() + _OPEN_COST_BYTES) / 2
    numbers = (middles * count / work[-1]).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(work)]
    return [objects.slice(begin, end - begin) for begin, end in pairwise(edges)]


def _split(objects: pa.Table, container: Container, read_settings: ReadSettings) -> ObjectsSplit:
    size = int(np.sum(objects["size"].to_numpy()))
    return ObjectsSplit(
        pack(objects), len(objects), size, _estimate(objects, size, read_settings), read_settings, container
    )


def _estimate(objects: pa.Table, size: int, read_settings: ReadSettings) -> int | None:
    """An estimate of the rows, for windows that are too small for a Spark job; None: unknown, not small."""
    if size > _ESTIMATE_BYTES:
        return None
    if read_settings.format == "binary":
        return len(objects)
    compressed = any(compression_of(key, read_settings.compression) for key in objects["key"].to_pylist())
    per_row = _BYTES_PER_ROW[read_settings.format]
    return size * (_COMPRESSION_RATIO if compressed else 1) // per_row + len(objects)


def _pieces(bookmark: pa.Table, container: Container, read_settings: ReadSettings) -> Sequence[ObjectsSplit]:
    """The splits of one large object; empty: it stays whole."""
    row = bookmark.to_pylist()[0]
    version = ObjectVersion(row["key"], row["etag"], row["size"], row["modified"])
    if compression_of(version.key, read_settings.compression):
        return []
    try:
        if read_settings.format == "parquet":
            groups = _row_groups(version, container, read_settings)
            return [_piece(bookmark, piece, rows, container, read_settings) for piece, rows in groups]
        if not _has_lines(version, container, read_settings):
            return []
    except (ObjectGone, ObjectChanged, ObjectRefused, ObjectFailed):
        return []  # its task reports the failure
    count = -(-version.size // read_settings.split_bytes)
    edges = [version.size * number // count for number in range(count + 1)]
    return [_piece(bookmark, piece, None, container, read_settings) for piece in pairwise(edges)]


def _piece(
    bookmark: pa.Table, piece: tuple[int, int], rows: int | None, container: Container, read_settings: ReadSettings
) -> ObjectsSplit:
    for name, edge in zip(("begin", "end"), piece, strict=True):
        bookmark = bookmark.append_column(name, pa.array([edge], pa.int64()))
    return ObjectsSplit(pack(bookmark), 1, read_settings.split_bytes, rows, read_settings, container)


def _row_groups(
    version: ObjectVersion, container: Container, read_settings: ReadSettings
) -> list[tuple[tuple[int, int], int]]:
    """Ranges of row groups with their rows; empty if there is only one. Raises ObjectFailed if the columns do not fit."""
    from headwater.sources.objects.formats.file_schema import Conformer
    from headwater.sources.objects.formats.parquet import ParquetObject

    file = ParquetObject(pa.PythonFile(ObjectFile(container, version), mode="r"))
    Conformer(read_settings.content).check(file_columns(file.schema))
    edges, size = [0], 0
    for group in range(file.groups):
        size += file.size(group)
        if size >= read_settings.split_bytes or group == file.groups - 1:
            edges.append(group + 1)
            size = 0
    counts = [sum(file.row_range(group)[1] for group in range(begin, end)) for begin, end in pairwise(edges)]
    return list(zip(pairwise(edges), counts, strict=True)) if len(counts) > 1 else []


def _has_lines(version: ObjectVersion, container: Container, read_settings: ReadSettings) -> bool:
    """True if it can be cut between lines."""
    if read_settings.format not in ("json", "text", "debezium") or read_settings.json_as == "document":
        return False
    if any(name == "row" for name, _ in read_settings.metadata):
        return False
    head = container.fetch_range(version, 0, min(_HEAD_BYTES, version.size))
    return read_settings.format == "text" or read_settings.json_as == "lines" or is_lines(strip_bom(head))


def replay(rejects: Sequence[Reject], read_settings: ReadSettings, container: Container) -> Sequence[Rows]:
    """The rows of the rejects of one stream; empty without rejects."""
    if not rejects:
        return []
    return [_rows(read_settings, (ReplaySplit(tuple(rejects), read_settings, container),))]


@dataclass(frozen=True)
class ReplaySplit:
    """Rejects of one stream."""

    rejects: tuple[Reject, ...] = field(repr=False)
    read_settings: ReadSettings = field(repr=False)
    container: Container = field(repr=False)

    @property
    def rows(self) -> int | None:
        """None: the number of rows of an object is unknown."""
        return None if any(_is_object(reject) for reject in self.rejects) else len(self.rejects)

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            yield from (self._object if _is_object(reject) else self._row)(reject, on_reject or raise_reject)

    def _object(self, reject: Reject, on_reject: OnReject) -> Iterator[pa.RecordBatch]:
        version = self.container.stat(str(reject.more["key"]))
        if version is None:
            on_reject(_with_reason(reject, "the object was deleted"))
            return

        def on_new_reject(new: Reject) -> None:
            on_reject(_with_reason(reject, new.reason) if new.part else new)

        yield from ObjectsReader(self.read_settings, self.container, on_new_reject).read_objects(
            [ListedObject(version)]
        )

    def _row(self, reject: Reject, on_reject: OnReject) -> Iterator[pa.RecordBatch]:
        version = ObjectVersion(*(reject.more[name] for name in ("key", "etag", "size", "modified")))
        try:
            decoded = self._decode(reject, version)
        except ObjectChanged:
            return
        except ObjectGone as gone:
            decoded = Decoded(failed={0: ObjectFailed(f"its object was deleted ({gone})")})
        for reason in [*(bad.reason for bad in decoded.bad), *(failed.reason for failed in decoded.failed.values())]:
            on_reject(_with_reason(reject, reason))
        for part in decoded.parts:
            if part.rows.num_rows:
                yield with_metadata(self.read_settings, self.container, [ListedObject(version)], part)

    def _decode(self, reject: Reject, version: ObjectVersion) -> Decoded:
        """Raises ObjectGone, ObjectChanged where the payload is not enough."""
        if self.read_settings.format in ("json", "csv", "text", "debezium"):
            decoded, number = self._from_bytes(reject), np.array([int(reject.location["row"])])
            decoded.parts = [replace(part, numbers=number[: part.rows.num_rows]) for part in decoded.parts]
            return decoded
        if "row_group" in reject.more:
            group = int(reject.more["row_group"])
            return concat_decoded(
                read_piece(self.container, ListedObject(version, piece=(group, group + 1)), self.read_settings)
            )
        self.container.fetch_range(version, 0, 1)
        return Decoded(failed={0: ObjectFailed(reject.reason)})  # the type is the file's: a replay cannot change it

    def _from_bytes(self, reject: Reject) -> Decoded:
        if self.read_settings.format == "json":
            return JsonObjects(decoder_schema(self.read_settings), "document").element(reject.payload)
        if self.read_settings.events is not None:
            from headwater.sources.objects.formats.debezium import EventObjects

            return EventObjects(self.read_settings.events, "lines").element(reject.payload)
        if self.read_settings.format == "csv":
            with_header = replace(self.read_settings, csv=self.read_settings.csv.model_copy(update={"header": True}))
            return open_decoder(with_header).decode([_with_header(reject, self.read_settings.csv)])
        return open_decoder(self.read_settings).decode([reject.payload])


def _is_object(reject: Reject) -> bool:
    return "row" not in reject.location


def _with_reason(reject: Reject, reason: str) -> Reject:
    """The same reject with the new reason."""
    return replace(reject, reason=reason, part="", again=False)


def _with_header(reject: Reject, settings: CsvSettings) -> bytes:
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=settings.delimiter,
        quotechar=settings.quote,
        escapechar=settings.escape,
        quoting=csv.QUOTE_ALL,
        lineterminator="\n",
    )
    writer.writerow(reject.more["columns"])
    return out.getvalue().encode() + reject.payload
