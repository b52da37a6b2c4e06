"""Avro objects: their own columns, exactly, in every codec."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import zlib
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.position.stream_state import StreamState
from headwater.sources.avro import AvroReader, CutShort, encode_bytes, encode_long, read_header
from headwater.sources.objects.schema import infer_state
from tests.sources.objects.object_folder import ObjectFolder


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


def avro(fields: dict[str, object], records: list[dict], codec: str = "null", **more: object) -> bytes:
    schema = {
        "type": "record",
        "name": "order",
        "namespace": "shop",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec=codec, **more)
    return out.getvalue()


def with_codec(data: bytes, codec: str) -> bytes:
    """The same file in a codec that this machine's fastavro does not write."""
    header = read_header(data)
    about = {"avro.schema": header.schema.encode(), "avro.codec": codec.encode()}
    pairs = b"".join(encode_bytes(name.encode()) + encode_bytes(value) for name, value in about.items())
    content = b"Obj\x01" + encode_long(len(about)) + pairs + encode_long(0) + header.sync
    reader = AvroReader(data, header.end)
    while reader.position < len(data):
        count, block = reader.number(), reader.take(reader.number())
        assert reader.take(16) == header.sync
        if codec == "snappy":
            block = pa.compress(block, "snappy", asbytes=True) + zlib.crc32(block).to_bytes(4, "big")
        else:
            block = pa.compress(block, "zstd", asbytes=True)
        content += encode_long(count) + encode_bytes(block) + header.sync
    return content


def inferred(folder: ObjectFolder, known: dict | None = None) -> dict[str, tuple[int, str]]:
    chosen = ObjectsSourceSettings(url=folder.container.address, format="avro")
    return dict(infer_state(StreamState(columns=known or {}), folder.pages(), chosen, folder.container).columns)


def read(folder: ObjectFolder, **more: object) -> list[dict]:
    return folder.rows(inferred(folder), format="avro", **{"metadata": [], **more})


FIELDS = {
    "id": "long",
    "note": ["null", "string"],
    "amount": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
    "name": {"type": "string", "logicalType": "uuid"},
    "tags": {"type": "array", "items": "string"},
    "more": {"type": "map", "values": ["null", "int"]},
    "state": {"type": "enum", "name": "state", "symbols": ["NEW", "PAID"]},
    "to": {"type": "record", "name": "place", "fields": [{"name": "at", "type": "at_type"}]},
    "from": "place",
}
FIELDS["to"]["fields"][0]["type"] = {"type": "long", "logicalType": "timestamp-millis"}
MOMENT = dt.datetime(2026, 3, 2, 8, 0, 0, 123000, tzinfo=dt.UTC)
RECORD = {
    "id": 7,
    "note": None,
    "amount": Decimal("12.30"),
    "at": MOMENT.replace(microsecond=123456),
    "local": MOMENT.replace(tzinfo=None),
    "day": dt.date(2026, 3, 2),
    "time": dt.time(8, 0, 0, 5000),
    "name": "0A0A0A0A-0000-0000-0000-000000000000",
    "tags": ["a", "b"],
    "more": {"x": 1, "y": None},
    "state": "PAID",
    "to": {"at": MOMENT},
    "from": {"at": MOMENT},
}
ROW = {**RECORD, "more": [("x", 1), ("y", None)], "time": "08:00:00.005"}
MANY = [{"id": number, "s": f"text {number}"} for number in range(25_000)]


def test_every_type_is_kept_exactly(folder: ObjectFolder):
    folder.put("x", avro(FIELDS, [RECORD]))
    assert {name: kind for name, (_, kind) in inferred(folder).items()} == {
        "id": "bigint",
        "note": "string",
        "amount": "decimal(9,2)",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "day": "date",
        "time": "string",
        "name": "string",
        "tags": "array<string>",
        "more": "map<string,int>",
        "state": "string",
        "to": "struct<`at`: timestamp>",
        "from": "struct<`at`: timestamp>",
    }
    assert read(folder) == [ROW]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard", "gzip"])
def test_every_codec_is_read(folder: ObjectFolder, codec: str):
    plain = avro({"id": "long", "s": "string"}, MANY, "null" if codec in {"snappy", "zstandard", "gzip"} else codec)
    folder.put("x", with_codec(plain, codec) if codec in {"snappy", "zstandard"} else plain)
    if codec == "gzip":
        folder.put("x", b"")
        folder.put("x.gz", gzip.compress(plain))
    rows = read(folder, metadata=["row"])
    assert [(row["id"], row["s"], row["object_row"]) for row in rows] == [
        (n, f"text {n}", n + 1) for n in range(25_000)
    ]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_files_that_are_cut_or_broken_fail(folder: ObjectFolder, codec: str):
    file = avro({"id": "long", "s": "string"}, MANY[:5000], "deflate" if codec == "deflate" else "null")
    file = with_codec(file, codec) if codec in {"snappy", "zstandard"} else file
    broken = {str(cut): file[:cut] for cut in (0, 3, 50, len(file) // 2, len(file) - 20, len(file) - 1)}
    if codec != "null":  # nothing would tell
        broken["middle"] = file[: len(file) // 2] + b"\x55" * 50 + file[len(file) // 2 + 50 :]
    for key, content in broken.items():
        folder.put(key, content)
    folder.put("whole", file)
    assert len(read(folder)) == 5000
    assert set(folder.reasons()) == {(key, None) for key in broken}
    assert all("Avro" in reason for reason in folder.reasons().values())


def test_numbers_beyond_what_datetimes_hold_are_kept_and_nanoseconds_are_rejects(folder: ObjectFolder):
    numbers = [(0, 0), (2**62, 1000), (2**62, 1500)]
    fields = {"n": "int", "far": {"type": "long"}, "fine": {"type": "long"}}
    data = avro(fields, [{"n": n, "far": far, "fine": fine} for n, (far, fine) in enumerate(numbers)])
    header = read_header(data)
    schema = json.loads(header.schema)
    schema["fields"][1]["type"] = {"type": "long", "logicalType": "timestamp-micros"}
    schema["fields"][2]["type"] = {"type": "long", "logicalType": "timestamp-nanos"}
    about = {"avro.schema": json.dumps(schema).encode(), "avro.codec": b"null"}
    pairs = b"".join(encode_bytes(name.encode()) + encode_bytes(value) for name, value in about.items())
    folder.put("x", b"Obj\x01" + encode_long(2) + pairs + encode_long(0) + header.sync + data[header.end :])
    columns = inferred(folder)
    assert [kind for _, kind in columns.values()] == ["int", "timestamp", "timestamp"]
    (split,) = folder.splits(columns, format="avro", metadata=[])
    rejects = []
    far = [n for b in split.read(rejects.append) for n in b.column(1).cast(pa.int64()).to_pylist()]
    assert far == [0, 2**62]
    assert [r.location["row"] for r in rejects] == [3]


def test_unions_fail_the_object_with_the_reason(folder: ObjectFolder):
    folder.put("x", avro({"a": ["int", "string"]}, [{"a": 1}]))
    folder.put("y", avro({"b": "int"}, [{"b": 1}]))
    assert read(folder) == [{"b": 1}]
    assert folder.reasons() == {("x", None): "its schema: a: a union of several types is no column"}


def test_columns_widen_over_the_objects(folder: ObjectFolder):
    folder.put("1", avro({"a": "int", "f": "float"}, [{"a": 1, "f": 0.5}]))
    folder.put("2", avro({"a": "long"}, [{"a": 2**40}]))
    folder.put("3", avro({"a": "string"}, [{"a": "x"}]))
    assert read(folder) == [{"a": 1, "f": 0.5}, {"a": 2**40, "f": None}]
    assert folder.reasons() == {("3", None): "column a is string in the object and bigint in the stream"}


def test_a_header_longer_than_the_first_look_is_read(folder: ObjectFolder):
    fields = {f"a_rather_long_name_of_a_column_{number}": "int" for number in range(3000)}
    folder.put("x", avro(fields, [dict.fromkeys(fields, 1)]))
    assert len(inferred(folder)) == 3000
    with pytest.raises(CutShort):
        read_header((folder.container.folder / "x").read_bytes()[:1000])


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_written_as_they_are_read(value: int):
    assert AvroReader(encode_long(value)).number() == value
