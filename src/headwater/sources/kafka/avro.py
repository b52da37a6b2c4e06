"""Avro messages as columns, with and without the header of a schema registry (a zero, four bytes of schema number).

A message without a registry may have the header or not; both are tried. One that makes sense both ways is a reject:
a guess could be wrong in silence (G8).
"""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa

from headwater.config.settings import SecretText
from headwater.model.errors import SourceUnreachable
from headwater.model.secret import masked
from headwater.sources.avro import plain
from headwater.sources.values import Misfit, ParsedValues

_HEADER = 5


@dataclass(frozen=True)
class AvroSettings:
    """How Avro is read; sent to the executors."""

    schema: str  # of the columns, as JSON
    columns: pa.Schema
    header: str  # auto, none, registry
    registry: Registry | None = None

    def open(self) -> AvroValues:
        return AvroValues(self)


class AvroValues:
    """Decodes for one schema, from one thread."""

    def __init__(self, reading: AvroSettings) -> None:
        self._reading = reading
        self._writers: dict[int, Any] = {}

    def parse(self, values: Sequence[bytes | None]) -> ParsedValues:
        parsed, rows = ParsedValues(), []
        for index, value in enumerate(values):
            try:
                rows.append({} if value is None else self._record(value))
            except Misfit as misfit:
                parsed.rejected.append((index, str(misfit)))
        if rows:
            columns = [pa.array([plain(row.get(f.name), f.type) for row in rows], f.type) for f in self._columns]
            parsed.batches.append(pa.RecordBatch.from_arrays(columns, schema=self._columns))
        return parsed

    @property
    def _columns(self) -> pa.Schema:
        return self._reading.columns

    @cached_property
    def _wanted(self) -> Any:
        return fastavro.parse_schema(json.loads(self._reading.schema))

    def _record(self, value: bytes) -> dict[str, Any]:
        headed = len(value) >= _HEADER and value[0] == 0
        if self._reading.registry is not None:
            if not headed:
                raise Misfit("no schema number in front; write avro_header: none, or leave the registry out")
            return self._decoded(value[_HEADER:], self._writer(int.from_bytes(value[1:_HEADER], "big")))
        if self._reading.header == "none" or (self._reading.header == "auto" and not headed):
            return self._decoded(value, self._wanted)
        if not headed:
            raise Misfit("no schema number in front")
        if self._reading.header == "registry":
            return self._decoded(value[_HEADER:], self._wanted)
        return self._either(value)

    def _either(self, value: bytes) -> dict[str, Any]:
        records, reason = [], ""
        for data in (value[_HEADER:], value):
            try:
                records.append(self._decoded(data, self._wanted))
            except Misfit as misfit:
                reason = reason or str(misfit)
        if not records:
            raise Misfit(reason)
        if len(records) > 1:
            raise Misfit("readable with and without a schema number in front; write avro_header: registry or none")
        return records[0]

    def _writer(self, number: int) -> Any:
        if number not in self._writers:
            assert self._reading.registry is not None  # noqa: S101 - asked for only then
            try:
                self._writers[number] = fastavro.parse_schema(json.loads(self._reading.registry.schema(number)))
            except NoSuchSchema as missing:
                raise Misfit(str(missing)) from None
            except (ValueError, fastavro.schema.SchemaParseException) as error:
                raise Misfit(f"schema {number} cannot be used: {error}") from None
        return self._writers[number]

    def _decoded(self, data: bytes, writer: Any) -> dict[str, Any]:
        stream = io.BytesIO(data)
        try:
            record = fastavro.schemaless_reader(stream, writer, self._wanted)
        except Exception as error:  # noqa: BLE001 - the decoder meets arbitrary bytes; whatever it raises, the message is at fault
            raise Misfit(f"no Avro of this schema: {type(error).__name__} {error}".strip()) from None
        if left := len(data) - stream.tell():
            raise Misfit(f"no Avro of this schema: {left:,} bytes are left over")
        if not isinstance(record, dict):
            raise Misfit("no record")
        self._check(record)
        return record

    def _check(self, record: dict[str, Any]) -> None:
        for field in self._columns:
            try:
                pa.scalar(plain(record.get(field.name), field.type), field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError) as error:
                raise Misfit(f"{field.name}: {error}") from None


_TIMEOUT_SECONDS = 15.0
_NOT_FOUND = 404


class NoSuchSchema(Exception):
    """The registry answers, and has none that can be used; the text says why."""


@dataclass(frozen=True)
class Registry:
    """Where it is and who we are; sent to the executors."""

    url: str
    username: str | None = None
    password: SecretText | None = None

    def schema(self, number: int) -> str:
        """The Avro schema of that number, as JSON. Raises NoSuchSchema, SourceUnreachable."""
        address = f"{self.url.rstrip('/')}/schemas/ids/{number}"
        try:
            with urllib.request.urlopen(self._request(address), timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - the user's own address
                schema = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise NoSuchSchema(f"the registry has no schema {number}") from None
            raise self._unreachable(address, f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise self._unreachable(address, str(error)) from error
        if schema.get("schemaType", "AVRO") != "AVRO" or schema.get("references"):
            raise NoSuchSchema(f"schema {number} is {schema.get('schemaType', 'AVRO')} with references, or no Avro")
        return str(schema["schema"])

    def _request(self, address: str) -> urllib.request.Request:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.username and self.password:
            pair = f"{self.username}:{self.password.reveal()}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return urllib.request.Request(address, headers=headers)  # noqa: S310 - as above

    def _unreachable(self, address: str, reason: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"schema registry at {masked(address)}: {masked(reason)}",
            hint="see whether it runs at this address, and whether username and password fit",
        )
