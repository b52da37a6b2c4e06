"""Columns found in the objects of a window where nobody wrote a schema.

Every object of a window is looked at before it is read, so no field is ever missed. What is found becomes part of the
mark: it survives restarts, and a window that is read again has the columns of the first try (G5). Columns of JSON and CSV
keep the type of the window in which they were found, and later values that do not fit are rejects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from headwater.config.objects_source import ObjectsSource
from headwater.sources.json.found import Columns, Kinds, check_names, with_new
from headwater.sources.objects.container import Container, ObjectVersion
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.fetching import contents
from headwater.sources.objects.listed import Listed

_THREADS = 4  # parsers work outside of Python's lock
_TOGETHER = 8 << 20


def columns_after(
    known: Columns, pages: Iterable[pa.Table], settings: ObjectsSource, container: Container
) -> dict[str, tuple[int, str]]:
    """The known columns, and those that the objects bring. Objects that cannot be read bring none; they fail later."""
    if settings.format in ("text", "binary") or (settings.schema is not None and settings.format != "debezium"):
        return dict(known)
    objects = [one for page in pages for one in _listed(page)]
    if settings.format == "debezium":
        from headwater.sources.debezium.objects import columns_after as of_events  # noqa: PLC0415 - for these alone

        loaded = (held for _, held in contents(container, objects, settings.compression))
        good = (content for content in loaded if not isinstance(content, ObjectFailed))
        return dict(of_events(known, good, settings, container.address))
    if settings.format in ("parquet", "avro"):
        from headwater.sources.objects.declared_columns import declared_columns  # noqa: PLC0415 - for these alone

        versions = [one.version for one in objects]
        columns: Columns = declared_columns(known, versions, container, settings.format, settings.compression)
    else:
        columns = with_new(known, _kinds(objects, settings, container))
    check_names(container.address, columns, settings.metadata_columns.values())
    return dict(columns)


def _kinds(objects: Sequence[Listed], settings: ObjectsSource, container: Container) -> Kinds:
    kinds: Kinds = {}
    for found in _in_threads(_kinds_of(settings), _groups(contents(container, objects, settings.compression))):
        for name, seen in found.items():
            kinds.setdefault(name, set()).update(seen)
    return kinds


def _kinds_of(settings: ObjectsSource) -> Callable[[list[Content]], Kinds]:
    if settings.format == "json":
        from headwater.sources.objects.formats.json_found import json_kinds  # noqa: PLC0415 - as formats are opened

        return partial(json_kinds, as_=settings.json_as, large=4 * _TOGETHER)
    from headwater.sources.objects.formats.csv_found import csv_kinds  # noqa: PLC0415

    return partial(csv_kinds, settings=settings.csv)


def _listed(page: pa.Table) -> Iterator[Listed]:
    names = ("key", "etag", "size", "modified")
    for values in zip(*(page[name].to_pylist() for name in names), strict=True):
        yield Listed(ObjectVersion(*values))


def _groups(loaded: Iterable[tuple[Listed, Content | ObjectFailed]]) -> Iterator[list[Content]]:
    group: list[Content] = []
    size = 0
    for _, content in loaded:
        if isinstance(content, ObjectFailed):
            continue
        group.append(content)
        size += len(content)
        if size >= _TOGETHER:
            yield group
            group, size = [], 0
    if group:
        yield group


def _in_threads(work: Callable[[list[Content]], Kinds], groups: Iterable[list[Content]]) -> Iterator[Kinds]:
    """In their order, so that columns are always found in the same one; a few groups at a time are in memory."""
    with ThreadPoolExecutor(_THREADS) as threads:
        waiting: deque[Future[Kinds]] = deque()
        for group in groups:
            waiting.append(threads.submit(work, group))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
