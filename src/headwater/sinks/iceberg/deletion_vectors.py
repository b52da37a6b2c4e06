"""Deletion vectors of Iceberg's format version 3: which rows of a data file are gone, in one Puffin file per landing."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.model.errors import RunError
from headwater.sinks.iceberg.storage import read_bytes, write_bytes

if TYPE_CHECKING:
    from pyroaring import BitMap64

_PUFFIN = b"PFA1"
_VECTOR = bytes.fromhex("d1d33964")
_ROW_POSITION_FIELD = 2147483645  # Iceberg's id of the column `_pos`


@dataclass(frozen=True)
class Vector:
    """Where the vector of one data file lies in its Puffin file."""

    data_file: str
    offset: int
    length: int
    rows: int


def write_vectors(location: str, gone: Mapping[str, BitMap64]) -> tuple[list[Vector], int]:
    """Write one vector per data file; gives where they are, and the size of the Puffin file."""
    content, vectors = bytearray(_PUFFIN), []
    for data_file, positions in gone.items():
        blob = _encoded(positions)
        vectors.append(Vector(data_file, len(content), len(blob), len(positions)))
        content += blob
    footer = json.dumps({"blobs": [_described(vector) for vector in vectors]}).encode()
    content += _PUFFIN + footer + struct.pack("<i", len(footer)) + b"\x00\x00\x00\x00" + _PUFFIN
    write_bytes(location, bytes(content))
    return vectors, len(content)


def read_vector(location: str, offset: int, length: int) -> BitMap64:
    """The positions in a vector that somebody wrote before."""
    from pyroaring import BitMap64  # noqa: PLC0415 - only upserts need it

    blob = read_bytes(location, offset, length)
    body = blob[4:-4]
    if body[:4] != _VECTOR or zlib.crc32(body) != struct.unpack(">I", blob[-4:])[0]:
        raise RunError(f"the deletion vector at byte {offset} of {location} is damaged", hint="restore the file")
    return BitMap64.deserialize(body[4:])


def _encoded(positions: BitMap64) -> bytes:
    body = _VECTOR + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _described(vector: Vector) -> dict[str, object]:
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_FIELD],
        "snapshot-id": -1,  # of the snapshot that adds it, which is not known yet
        "sequence-number": -1,
        "offset": vector.offset,
        "length": vector.length,
        "properties": {"referenced-data-file": vector.data_file, "cardinality": str(vector.rows)},
    }
