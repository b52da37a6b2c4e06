"""Avro messages, plain and under the header of a registry. The registry is a local server that speaks the one
documented question (`GET /schemas/ids/{id}`): a real one does not run here."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fastavro
import pytest

from headwater.model.errors import SourceUnreachable
from tests.sources.kafka.poller import Poller, send
from tests.support.stack import KafkaForTests

RECORD = {
    "type": "record",
    "name": "order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "state", "type": {"type": "enum", "name": "state", "symbols": ["NEW", "PAID"]}},
        {"name": "to", "type": {"type": "record", "name": "place", "fields": [{"name": "city", "type": "string"}]}},
    ],
}
ORDER = {
    "id": 7,
    "note": None,
    "amount": Decimal("12.30"),
    "at": dt.datetime(2026, 3, 2, 8, 0, 0, 123456, tzinfo=dt.UTC),
    "day": dt.date(2026, 3, 2),
    "tags": ["a", "b"],
    "more": {"x": 1, "y": None},
    "state": "PAID",
    "to": {"city": "Köln"},
}
ROW = {**ORDER, "more": [("x", 1), ("y", None)]}


def encoded(record: dict, schema: dict = RECORD) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def headed(data: bytes, number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(RECORD))
    return tmp_path


def avro_poller(kafka: KafkaForTests, topic: str, folder: Path, **more: object) -> Poller:
    settings = {"format": "avro", "avro_schema": "order.avsc", "metadata": [], **more}
    return Poller(kafka.brokers, topic, folder=folder, **settings)


def test_records_become_columns_with_and_without_a_header(kafka: KafkaForTests, folder: Path):
    topic = kafka.topic()
    send(kafka.brokers, topic, [encoded(ORDER), headed(encoded(ORDER), 3)])
    assert avro_poller(kafka, topic, folder).poll() == [ROW, ROW]


def test_bytes_that_are_no_such_record_are_rejects(kafka: KafkaForTests, folder: Path):
    topic = kafka.topic()
    send(kafka.brokers, topic, [encoded(ORDER), b"", b"\x01", encoded(ORDER) + b"!", None])
    poller = avro_poller(kafka, topic, folder)
    good, tombstone = poller.poll()
    assert good == ROW
    assert set(tombstone.values()) == {None}
    assert [reject.location["offset"] for reject in poller.rejects] == [1, 2, 3]
    assert "1 bytes are left over" in poller.rejects[2].reason


@contextmanager
def registry(schemas: dict[int, dict], login: str | None = None) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None
            number = int(self.path.rpartition("/")[2]) if self.path.startswith("/schemas/ids/") else -1
            if wanted and self.headers.get("Authorization") != wanted:
                self._send(401, {"error_code": 401, "message": "unauthorized"})
            elif number in schemas:
                self._send(200, {"schema": json.dumps(schemas[number])})
            else:
                self._send(404, {"error_code": 40403, "message": "Schema not found"})

        def _send(self, code: int, body: dict) -> None:
            data = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_older_and_newer_writers_are_read_through_the_registry(kafka: KafkaForTests, folder: Path):
    older = {**RECORD, "fields": [field for field in RECORD["fields"] if field["name"] != "note"]}
    newer = {**RECORD, "fields": [*RECORD["fields"], {"name": "extra", "type": "string"}]}
    topic = kafka.topic()
    values = [
        headed(encoded(ORDER, older), 1),
        headed(encoded({**ORDER, "extra": "!"}, newer), 2),
        headed(encoded(ORDER), 9),
        encoded(ORDER),
    ]
    send(kafka.brokers, topic, values)
    with registry({1: older, 2: newer}, login="me:pw") as url:
        access = {"url": url, "username": "me", "password": "pw"}
        poller = avro_poller(kafka, topic, folder, registry=access)
        assert poller.poll() == [ROW, ROW]
        assert [reject.reason for reject in poller.rejects] == [
            "the registry has no schema 9",
            "no schema number in front; write avro_header: none, or leave the registry out",
        ]
        wrong = avro_poller(kafka, topic, folder, registry={**access, "password": "no"})
        with pytest.raises(SourceUnreachable, match="401"):
            wrong.poll()
        assert "no" not in repr(wrong.settings.kafka.registry)
    with pytest.raises(SourceUnreachable, match="schema registry at"):
        avro_poller(kafka, topic, folder, registry=access).poll()
