"""Schema inference from the objects of a window, for settings without a schema.

Every object of a window is inspected before it is read, so no field is missed. The inferred columns are part of the
mark: they survive restarts, and a retry has the columns of the first attempt (G5). Columns of JSON and CSV keep the
type of the window that introduced them; later values that do not fit are rejects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.position.stream_state import Columns, StreamState
from headwater.sources.avro import CutShort, read_header
from headwater.sources.ddl_schema import ddl_of, schema_of
from headwater.sources.json.columns import SeenTypes, check_names, with_new
from headwater.sources.objects.content import (
    Content,
    ListedObject,
    ObjectFailed,
    ObjectFile,
    compression_of,
    fetch_object,
    fetch_objects,
)
from headwater.sources.objects.formats.avro import header_of, schema_in
from headwater.sources.objects.formats.file_schema import FileColumns, file_columns, fits
from headwater.sources.objects.formats.parquet import ParquetObject
from headwater.sources.objects.tuning import DEFAULT, Tuning
from headwater.storage.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion

_THREADS = 4  # parsers release Python's lock


def infer_state(
    known: StreamState,
    pages: Iterable[pa.Table],
    settings: ObjectsSourceSettings,
    container: Container,
    tuning: Tuning = DEFAULT,
) -> StreamState:
    """The known columns, and the new ones of the objects. Unreadable objects add none; they fail later."""
    if settings.format in ("text", "binary") or (settings.schema is not None and settings.format != "debezium"):
        return known
    objects = [listed for page in pages for listed in _listed(page)]
    if settings.format == "debezium":
        from headwater.sources.objects.formats.debezium import infer_state as infer_event_state

        fetched = fetch_objects(container, objects, settings.compression, tuning)
        contents = (content for _, content in fetched if not isinstance(content, ObjectFailed))
        return infer_event_state(known, contents, settings, container.address)
    if settings.format in ("parquet", "avro"):
        versions = [listed.version for listed in objects]
        columns: Columns = merge_file_columns(known.columns, versions, container, settings.format, settings.compression)
    else:
        columns = with_new(known.columns, _seen_types(objects, settings, container, tuning))
    check_names(container.address, columns, settings.metadata_columns.values())
    return replace(known, columns=columns)


def _seen_types(
    objects: Sequence[ListedObject], settings: ObjectsSourceSettings, container: Container, tuning: Tuning
) -> SeenTypes:
    seen_types: SeenTypes = {}
    fetched = fetch_objects(container, objects, settings.compression, tuning)
    for of_group in _in_threads(_inference(settings, tuning), _groups(fetched, tuning.infer_bytes)):
        for name, of_column in of_group.items():
            seen_types.setdefault(name, set()).update(of_column)
    return seen_types


def _inference(settings: ObjectsSourceSettings, tuning: Tuning) -> Callable[[list[Content]], SeenTypes]:
    if settings.format == "json":
        from headwater.sources.objects.formats.json import infer_json

        return partial(infer_json, as_=settings.json_as, large=4 * tuning.infer_bytes)
    from headwater.sources.objects.formats.csv import infer_csv

    return partial(infer_csv, settings=settings.csv)


def _listed(page: pa.Table) -> Iterator[ListedObject]:
    names = ("key", "etag", "size", "modified")
    for values in zip(*(page[name].to_pylist() for name in names), strict=True):
        yield ListedObject(ObjectVersion(*values))


def _groups(
    fetched: Iterable[tuple[ListedObject, Content | ObjectFailed]], group_bytes: int
) -> Iterator[list[Content]]:
    group: list[Content] = []
    size = 0
    for _, content in fetched:
        if isinstance(content, ObjectFailed):
            continue
        group.append(content)
        size += len(content)
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _in_threads(infer: Callable[[list[Content]], SeenTypes], groups: Iterable[list[Content]]) -> Iterator[SeenTypes]:
    """In order, so that columns always have the same order; few groups are in memory at a time."""
    with ThreadPoolExecutor(_THREADS) as threads:
        pending: deque[Future[SeenTypes]] = deque()
        for group in groups:
            pending.append(threads.submit(infer, group))
            if len(pending) > _THREADS:
                yield pending.popleft().result()
        for future in pending:
            yield future.result()


_PARALLEL_REQUESTS = 16
_HEADER_BYTES = 64 << 10

ReadSchema = Callable[[Container, ObjectVersion, str], pa.Schema]


def merge_file_columns(
    known: Columns, objects: Iterable[ObjectVersion], container: Container, format_: str, compression: str
) -> dict[str, tuple[int, str]]:
    """The known columns, widened where objects need it, then the new ones."""
    types = {name: schema_of(f"a {text}").field("a").type for name, (_, text) in known.items()}
    read = partial(_columns, _parquet_schema if format_ == "parquet" else _avro_schema, container, compression)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as threads:
        for columns in threads.map(read, objects):
            types = widen(types, columns)
    number = 1 + max((number for number, _ in known.values()), default=-1)
    new = {name: number + index for index, name in enumerate(name for name in types if name not in known)}
    return {name: (new.get(name, known.get(name, (0, ""))[0]), ddl_of(type_)) for name, type_ in types.items()}


def widen(types: Mapping[str, pa.DataType], columns: FileColumns) -> dict[str, pa.DataType]:
    """The types with an object's columns; unchanged if one of these does not fit."""
    widened, folded = dict(types), {name.lower(): name for name in types}
    for name, file_type in columns.items():
        if folded.get(name.lower(), name) != name:
            return dict(types)
        type_ = widened.get(name, file_type)
        if not fits(file_type, type_) and not fits(type_, file_type):
            return dict(types)
        widened[name] = type_ if fits(file_type, type_) else file_type
    return widened


def _columns(read_schema: ReadSchema, container: Container, compression: str, version: ObjectVersion) -> FileColumns:
    try:
        return file_columns(read_schema(container, version, compression))
    except (ObjectFailed, ObjectGone, ObjectChanged, ObjectRefused):
        return {}  # it fails with a reason when it is read


def _parquet_schema(container: Container, version: ObjectVersion, compression: str) -> pa.Schema:
    if compression_of(version.key, compression):
        return ParquetObject(pa.py_buffer(fetch_object(container, version, compression))).schema
    return ParquetObject(pa.PythonFile(ObjectFile(container, version), mode="r")).schema


def _avro_schema(container: Container, version: ObjectVersion, compression: str) -> pa.Schema:
    if compression_of(version.key, compression):
        return schema_in(header_of(fetch_object(container, version, compression)))
    end = _HEADER_BYTES
    while True:
        beginning = container.fetch_range(version, 0, min(end, version.size))
        try:
            return schema_in(read_header(beginning))
        except CutShort:
            if end >= version.size:
                raise ObjectFailed("not Avro: the file is truncated") from None
            end *= 4
