"""Packed folders, and how a packed lake is moved: Iceberg's metadata holds absolute paths.

Only the lake is touched. Progress stores are unpacked byte for byte as they were written.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

_MAGIC = b"PFA1"  # of Puffin files, which hold deletion vectors
_FOOTER_TAIL = struct.Struct("<i4s4s")  # payload's size, flags, magic


def pack(folder: Path, archive: Path, leave_out: Callable[[Path], bool] = lambda _: False) -> None:
    """All of the folder, without what differs from one packing to the next."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if leave_out(Path(member.name)):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as file:
        for path in sorted(folder.iterdir()):
            file.add(path, path.name, filter=plain)


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")


def move_lake(lake: Path, old: str, new: str) -> None:
    """Make every path below `old` one below `new`: in Puffin files, manifests, lists of them, metadata, the catalog."""
    sizes = {path: _move_puffin(path, old, new) for path in lake.rglob("*.puffin")}
    lists = {path for path in lake.rglob("*.avro") if path.name.startswith("snap-")}
    for path in sorted(set(lake.rglob("*.avro")) - lists):
        sizes[path] = _move_avro(path, old, new, sizes)
    for path in lists:
        _move_avro(path, old, new, sizes)
    for path in lake.rglob("*.metadata.json"):
        path.write_text(path.read_text().replace(old, new))
    with sqlite3.connect(lake / "catalog.db") as catalog:
        for column in ("metadata_location", "previous_metadata_location"):
            catalog.execute(f"UPDATE iceberg_tables SET {column} = replace({column}, ?, ?)", [old, new])
        catalog.execute(
            "UPDATE iceberg_namespace_properties SET property_value = replace(property_value, ?, ?)", [old, new]
        )
    catalog.close()


def _move_avro(path: Path, old: str, new: str, sizes: dict[Path, int]) -> int:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, codec = reader.writer_schema, reader.codec
        metadata = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
        records = [_moved(record, old, new, sizes) for record in reader]
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec, metadata=metadata)
    return path.stat().st_size


def _moved(value: Any, old: str, new: str, sizes: dict[Path, int]) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_moved(one, old, new, sizes) for one in value]
    if not isinstance(value, dict):
        return value
    record = {name: _moved(one, old, new, sizes) for name, one in value.items()}
    for location, size in (("manifest_path", "manifest_length"), ("file_path", "file_size_in_bytes")):
        if location in record:
            record[size] = sizes.get(Path(record[location].removeprefix("file:")), record[size])
    return record


def _move_puffin(path: Path, old: str, new: str) -> int:
    content = path.read_bytes()
    size, flags, magic = _FOOTER_TAIL.unpack(content[-_FOOTER_TAIL.size :])
    begin = len(content) - _FOOTER_TAIL.size - size
    assert magic == _MAGIC == content[begin - len(_MAGIC) : begin]
    assert flags == bytes(4), "the footer is compressed"
    footer = json.loads(content[begin : begin + size])
    for blob in footer["blobs"]:
        blob["properties"] = {name: text.replace(old, new) for name, text in blob["properties"].items()}
    payload = json.dumps(footer, separators=(",", ":")).encode()
    path.write_bytes(content[:begin] + payload + _FOOTER_TAIL.pack(len(payload), flags, magic))
    return path.stat().st_size
