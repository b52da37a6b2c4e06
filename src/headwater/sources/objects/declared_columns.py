"""Columns of Parquet and Avro objects, from their footers and headers, unified over a window.

The first object that brings a column says its type; others may widen it. An object whose columns do not fit into those
brings none: it fails when it is read, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from headwater.sources.avro.container import CutShort, read_header
from headwater.sources.ddl_schema import ddl_of, schema_of
from headwater.sources.json.found import Columns
from headwater.sources.objects.container import (
    Container,
    ObjectChanged,
    ObjectGone,
    ObjectRefused,
    ObjectVersion,
)
from headwater.sources.objects.contents import compression_of, load
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.avro import header_of, schema_in
from headwater.sources.objects.formats.parquet import ParquetObject
from headwater.sources.objects.object_file import ObjectFile
from headwater.sources.objects.own_columns import OwnColumns, fits, own_columns

_AT_ONCE = 16
_HEADER = 64 << 10

Look = Callable[[Container, ObjectVersion, str], pa.Schema]


def declared_columns(
    known: Columns, objects: Iterable[ObjectVersion], container: Container, kind: str, compression: str
) -> dict[str, tuple[int, str]]:
    """The known columns, wider where objects need it, and new ones behind them."""
    types = {name: schema_of(f"a {text}").field("a").type for name, (_, text) in known.items()}
    look = partial(_own, _parquet if kind == "parquet" else _avro, container, compression)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for own in threads.map(look, objects):
            types = unified(types, own)
    number = 1 + max((number for number, _ in known.values()), default=-1)
    new = {name: number + place for place, name in enumerate(name for name in types if name not in known)}
    return {name: (new.get(name, known.get(name, (0, ""))[0]), ddl_of(held)) for name, held in types.items()}


def unified(types: Mapping[str, pa.DataType], own: OwnColumns) -> dict[str, pa.DataType]:
    """With an object's columns, or as they were, if one of those has no place."""
    made, folded = dict(types), {name.lower(): name for name in types}
    for name, held in own.items():
        if folded.get(name.lower(), name) != name:
            return dict(types)
        column = made.get(name, held)
        if not fits(held, column) and not fits(column, held):
            return dict(types)
        made[name] = column if fits(held, column) else held
    return made


def _own(look: Look, container: Container, compression: str, version: ObjectVersion) -> OwnColumns:
    try:
        return own_columns(look(container, version, compression))
    except (ObjectFailed, ObjectGone, ObjectChanged, ObjectRefused):
        return {}  # it fails when it is read, and says so


def _parquet(container: Container, version: ObjectVersion, compression: str) -> pa.Schema:
    if compression_of(version.key, compression):
        return ParquetObject(pa.py_buffer(load(container, version, compression))).schema
    return ParquetObject(pa.PythonFile(ObjectFile(container, version), mode="r")).schema


def _avro(container: Container, version: ObjectVersion, compression: str) -> pa.Schema:
    if compression_of(version.key, compression):
        return schema_in(header_of(load(container, version, compression)))
    end = _HEADER
    while True:
        beginning = container.fetch_range(version, 0, min(end, version.size))
        try:
            return schema_in(read_header(beginning))
        except CutShort:
            if end >= version.size:
                raise ObjectFailed("no Avro: it ends too soon") from None
            end *= 4
