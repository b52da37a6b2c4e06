"""The files sink with `layout: connect`: Kafka messages, named and written as Kafka Connect's S3 sinks do.

Confluent's sink writes the `value` alone, Aiven's an object with all fields of the message. Files appear one by one,
so a reader may see a part of a window; the mark advances when all are durable. Names and cuts depend on the window
alone, so a repeated attempt puts the same files again, and none twice (G2, G4).
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Literal

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.project import S3Settings
from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.errors import SchemaRefused, SettingsError, ValueNotKept
from headwater.model.landing import Landing
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Rows
from headwater.sinks.files.targets import storage_errors
from headwater.sinks.rejects import SinkRejects
from headwater.sinks.tasks import RowCounter, count_rows
from headwater.sinks.text_values import flat_column
from headwater.sources.json.decoder import ArrowJson
from headwater.storage.destination import ObjectDestination, open_destination

Fields = Literal["all", "value"]

_NO_COLUMNS = pa.schema([])
_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_MAX_CACHED_HEADERS = 10_000
_ALL_FIELDS = "use fields: all, which keeps any text"


class MessageLines:
    """Makes the lines of one landing."""

    def __init__(self, fields: Fields, names: Sequence[str]) -> None:
        self._fields, self._names = fields, set(names)
        self._header_cache: dict[tuple[tuple[str, bytes | None], ...], bytes] = {}

    def of(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """One line per row, None for a row without one. Raises ValueNotKept where a row has no exact line."""
        values = batch.column("value").cast(pa.binary())
        if self._fields == "value":
            return [None if value is None else _value_line(value) for value in values.to_pylist()]
        columns = [_member("value", _documents(values, "the value"))]
        if "kafka_key" in self._names:
            columns.insert(0, _member("key", _documents(batch.column("kafka_key").cast(pa.binary()), "the key")))
        columns += [_member(name, _numbers(batch.column(f"kafka_{name}"))) for name in ("offset", "partition")]
        if "kafka_timestamp" in self._names:
            columns.append(_member("timestamp", _timestamps(batch.column("kafka_timestamp"))))
        if "kafka_headers" in self._names:
            columns.append(_member("headers", self._headers(batch.column("kafka_headers"))))
        return [b"{" + b",".join(members) + b"}" for members in zip(*columns, strict=True)]

    def _headers(self, column: pa.Array) -> list[bytes]:
        texts, edges = [], column.offsets.to_pylist()
        names, values = (column.values.field(index).to_pylist() for index in (0, 1))
        headers = list(zip(names, values, strict=True))
        for begin, end in pairwise(edges):
            # Debezium writes the same few headers into every message.
            key = tuple(headers[begin:end])
            text = self._header_cache.get(key)
            if text is None:
                text = json.dumps(
                    [_header(*header) for header in key], ensure_ascii=False, separators=(",", ":")
                ).encode()
                if len(self._header_cache) < _MAX_CACHED_HEADERS:
                    self._header_cache[key] = text
            texts.append(text)
        return texts


def _member(name: str, values: Sequence[bytes]) -> list[bytes]:
    before = f'"{name}":'.encode()
    return [before + value for value in values]


def _header(name: str, value: bytes | None) -> dict[str, str | None]:
    """As text; other bytes as `base64`, so that readers can tell them apart."""
    if value is None:
        return {"key": name, "value": None}
    try:
        return {"key": name, "value": value.decode()}
    except UnicodeDecodeError:
        import base64

        return {"key": name, "base64": base64.b64encode(value).decode()}


def _documents(column: pa.Array, what: str) -> list[bytes]:
    """Each as JSON: JSON stays as it is, other text becomes a JSON string."""
    values = column.to_pylist()
    present = [value for value in values if value is not None]
    if _all_objects(present):
        return [b"null" if value is None else value for value in values]
    return [b"null" if value is None else _document(value, what) for value in values]


def _all_objects(values: Sequence[bytes]) -> bool:
    """True if each is a JSON object on one line; one parse decides for all."""
    if any(b"\n" in value or b"\r" in value for value in values):
        return False
    return not values or ArrowJson(_NO_COLUMNS).parse(values) is not None


def _document(value: bytes, what: str) -> bytes:
    if _is_json(value):
        return value.translate(_BREAKS)  # JSON allows a line break only where it allows a space
    try:
        return json.dumps(value.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise ValueNotKept(f"{what} is neither JSON nor text: byte {error.start:,} is not UTF-8") from error


def _value_line(value: bytes) -> bytes:
    """The value as a line."""
    if b"\n" not in value and b"\r" not in value and value:
        return value
    if not value:
        raise ValueNotKept("the value is empty, and readers skip empty lines", hint=_ALL_FIELDS)
    if _is_json(value):
        return value.translate(_BREAKS)
    raise ValueNotKept("the value is not JSON and spans several lines", hint=_ALL_FIELDS)


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode(), parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _numbers(column: pa.Array) -> list[bytes]:
    return [str(number).encode() for number in column.to_pylist()]


def _timestamps(column: pa.Array) -> list[bytes]:
    texts = flat_column(pc.cast(column, pa.timestamp("ms", "UTC")))
    return [b"null" if text is None else f'"{text}"'.encode() for text in texts.to_pylist()]


_DIGITS = 10  # of an offset in a name, as Confluent's sink pads it


@dataclass(frozen=True)
class MessageFile:
    """One file, before it is put."""

    name: str  # below the sink's path
    content: Path
    rows: int


@dataclass(frozen=True)
class FileCuts:
    """Which file an offset belongs to. By the window only: every attempt, on any machine, cuts alike (G2)."""

    begins: Mapping[int, int]  # the window's first offset, by partition
    offsets_per_file: int

    @classmethod
    def of(cls, window: Window, topic: str, offsets_per_file: int) -> FileCuts:
        if window.part or not isinstance(window.start, OffsetsMark):  # a replay has messages from before its start
            return cls({}, offsets_per_file)
        return cls(window.start.topics.get(topic, {}), offsets_per_file)

    def file_of(self, partition: int, offset: int) -> tuple[int, int]:
        """The partition, and the first offset of the file that holds this one."""
        begin = self.begins.get(partition, 0)
        return partition, begin + (offset - begin) // self.offsets_per_file * self.offsets_per_file


class FileStaging:
    """Writes lines to files; they come in the order of the splits: by partition and offset."""

    def __init__(self, folder: Path, topic: str, cuts: FileCuts, suffix: str = "") -> None:
        self._folder, self._topic, self._cuts, self._suffix = folder, topic, cuts, suffix
        self._rows: dict[tuple[int, int], int] = {}
        self._open: tuple[tuple[int, int], IO[bytes]] | None = None

    def add(self, batch: pa.RecordBatch, lines: Sequence[bytes | None]) -> None:
        partitions, offsets = batch.column("kafka_partition").to_pylist(), batch.column("kafka_offset").to_pylist()
        files = list(map(self._cuts.file_of, partitions, offsets))
        edges = [0, *(n for n in range(1, len(files)) if files[n] != files[n - 1]), len(files)]
        for begin, end in pairwise(edges):
            present = [line for line in lines[begin:end] if line is not None]
            if present:
                self._file(files[begin]).write(b"\n".join(present) + b"\n")
                self._rows[files[begin]] += len(present)

    def finish(self) -> list[MessageFile]:
        self._close()
        return [
            MessageFile(name_of(self._topic, *file, self._suffix), self._content(file), rows)
            for file, rows in self._rows.items()
        ]

    def _file(self, file: tuple[int, int]) -> IO[bytes]:
        if self._open is None or self._open[0] != file:
            self._close()
            # Splits may return to a partition: append to its file.
            self._open = file, self._content(file).open("ab")
            self._rows.setdefault(file, 0)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _content(self, file: tuple[int, int]) -> Path:
        return self._folder / f"{file[0]}-{file[1]}"


def name_of(topic: str, partition: int, offset: int, suffix: str = "") -> str:
    """As Confluent's sink names its objects: `orders/partition=0/orders+0+0000000042.json`."""
    return f"{topic}/partition={partition}/{topic}+{partition}+{offset:0{_DIGITS}d}{suffix}.json"


_PARALLEL_PUTS = 8
_REQUIRED = ("value", "kafka_partition", "kafka_offset")


class MessageFilesSink:
    """Lands messages. A window that has landed before is put again, and changes nothing."""

    def __init__(self, settings: FilesSinkSettings, sink_id: str, folder: Path, s3: S3Settings) -> None:
        self._settings, self._id = settings, sink_id
        self._destination = open_destination(settings.path, folder, settings.s3 or s3)
        if isinstance(self._destination, ObjectDestination) and self._destination.scheme != "s3":
            raise SettingsError(
                f"{sink_id}: layout: connect writes to folders and S3, not to {self._destination}",
                hint="use a folder or s3://bucket/folder",
            )

    @property
    def id(self) -> str:
        return self._id

    def landed(self, attempt: Attempt, stream: str) -> Landing | None:  # noqa: ARG002 - the protocol's form
        """Always None: this layout records no windows, and putting one again is cheap and harmless."""
        return None

    def land(self, attempt: Attempt, rows: Rows) -> Landing:
        began = time.monotonic()
        _check_columns(rows)
        with tempfile.TemporaryDirectory(prefix="headwater-messages-") as folder:
            files = self._stage(attempt, rows, Path(folder))
            with attempt.publishing():
                self._publish(attempt, files)
        proof = {"published": f"{self._destination}/{rows.stream}", "files": len(files)}
        seconds = time.monotonic() - began
        return Landing(self._id, rows.stream, attempt.window.id, sum(file.rows for file in files), seconds, proof)

    def close(self) -> None:
        """Keeps nothing open."""

    def _stage(self, attempt: Attempt, rows: Rows, folder: Path) -> Sequence[MessageFile]:
        cuts = FileCuts.of(attempt.window, rows.stream, self._settings.file_offsets)
        # A replay has messages from the middle of existing files: it writes separate files.
        suffix = f"-{attempt.window.id[:8]}" if attempt.window.part else ""
        staging = FileStaging(folder, rows.stream, cuts, suffix)
        lines, counter = MessageLines(self._settings.fields, rows.schema.names), RowCounter(attempt.progress)
        rejects = SinkRejects.of(self._id, rows, attempt)
        for number, batches in enumerate(rows.read_splits()):
            split_rejects = rejects.part(number)
            for batch in count_rows(batches, number, counter.part):
                with storage_errors(folder):
                    split_rejects.write(batch, lambda rows: staging.add(rows, lines.of(rows)))
        with storage_errors(folder):
            return staging.finish()

    def _publish(self, attempt: Attempt, files: Sequence[MessageFile]) -> None:
        with ThreadPoolExecutor(_PARALLEL_PUTS) as threads, storage_errors(self._destination):
            versions = list(threads.map(self._put, files))
        different = [(file, version) for file, version in zip(files, versions, strict=True) if version]
        if different:
            # From before a rewind, or from a writer with an older lease: only the holder may replace them (G4).
            attempt.clear_to_publish()
        for file, version in different:
            with storage_errors(self._destination):
                self._destination.replace(file.name, file.content.read_bytes(), version)

    def _put(self, file: MessageFile) -> str | None:
        return self._destination.put_if_absent(file.name, file.content.read_bytes())


def _check_columns(rows: Rows) -> None:
    missing = [name for name in _REQUIRED if name not in rows.schema.names]
    if missing or rows.splits is None:
        raise SchemaRefused(
            f"{rows.stream}: layout: connect needs messages of a kafka source; these rows lack {', '.join(missing) or 'offsets'}",
            hint="set format: text and metadata: [partition, offset, timestamp, key, headers] for the source, and remove the transform",
        )
