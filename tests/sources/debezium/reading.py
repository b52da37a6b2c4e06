"""Events decoded by hand: no Kafka, no Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headwater.config.sources.kafka import DebeziumSettings
from headwater.sources.ddl_schema import schema_of
from headwater.sources.debezium.decoder import Decoded, EventDecoder, EventFormat
from headwater.sources.debezium.envelope import OLD_KEY_HEADER, Messages
from headwater.sources.debezium.inference import ColumnInference
from headwater.sources.json.columns import ddl_of

RECORDED = Path(__file__).parent / "recorded"
RECORDED_MYSQL = Path(__file__).parent / "recorded_mysql"


def recorded() -> list[dict]:
    """Events of Debezium 3.6.3 on PostgreSQL 18, in the order of their numbers."""
    files = sorted(RECORDED.glob("*.json"), key=lambda file: int(re.match(r"\d+", file.name)[0]))
    return [json.loads(file.read_text()) | {"file": file.stem} for file in files]


def recorded_mysql(mode: str) -> list[dict]:
    """Events of Debezium 3.6.1 on MySQL 9.7, as `record_mysql` wrote them, with one of the connector's settings."""
    schemas, events = [], []
    for line in (RECORDED_MYSQL / f"{mode}.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if set(event) == {"schema"}:
            schemas.append(event["schema"])
            continue
        for side in ("key", "value"):
            if isinstance(document := event[side], dict) and set(document) == {"schema", "payload"}:
                event[side] = document | {"schema": schemas[document["schema"]]}
        events.append(event)
    return events


def as_bytes(value: object) -> bytes | None:
    return None if value is None else json.dumps(value, separators=(",", ":")).encode()


def messages_of(events: Sequence[dict]) -> Messages:
    """Of objects with value, key and headers."""
    return Messages(
        [as_bytes(event["value"]) for event in events],
        lambda n: as_bytes(events[n].get("key")),
        lambda n: next((v.encode() for name, v in events[n].get("headers", []) if name == OLD_KEY_HEADER), None),
    )


class Stream:
    """One table's events, read window by window as a source does."""

    def __init__(self, ddl: str | None = None, **settings: object) -> None:
        self.settings, self.ddl = DebeziumSettings.model_validate(settings), ddl
        self.columns: dict = {}
        self.key: tuple[str, ...] = ()

    def look(self, *windows: Messages) -> None:
        look = ColumnInference("shop.public.t", self.settings, self.ddl)
        for messages in windows:
            look.see(messages.values, [messages.key(n) for n in range(len(messages.values))])
        self.columns = dict(look.columns(self.columns, set()))
        self.key = look.key(self.key, self.columns)

    @property
    def table(self) -> pa.Schema:
        return schema_of(self.ddl or ddl_of(self.columns))

    def decode(self, messages: Messages) -> Decoded:
        reading = EventFormat("shop.public.t", self.table, self.key, self.ddl is not None, self.settings)
        decoded = EventDecoder(reading).decode(messages)
        decoded.rows.validate(full=True)
        assert len(decoded.message_indices) == decoded.rows.num_rows
        return decoded

    def poll(self, messages: Messages) -> Decoded:
        self.look(messages)
        return self.decode(messages)


def rows(decoded: Decoded) -> list[dict]:
    assert decoded.rejected == []
    return decoded.rows.to_pylist()


SOURCE = {"connector": "postgresql", "sequence": '["100","200"]', "lsn": 200, "txId": 7, "ts_us": 1794797043143407}


def event(op: str, after: dict | None, before: dict | None = None, **source: object) -> dict:
    """The value of an event, without its schema."""
    return {"before": before, "after": after, "source": SOURCE | source, "transaction": None, "op": op, "ts_ms": 1}


def with_schema(fields: Sequence[dict], value: dict) -> dict:
    """The same with the schema that says how its row's columns are written."""
    row = {"type": "struct", "optional": True, "fields": list(fields)}
    source = [{"type": "string", "optional": False, "field": name} for name in ("connector", "sequence")]
    parts = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "field": "source", "fields": source},
        {"type": "string", "field": "op"},
    ]
    return {"schema": {"type": "struct", "fields": parts, "name": "shop.public.t.Envelope"}, "payload": value}


def field(name: str, kind: str, semantic: str | None = None, **more: object) -> dict:
    named = {"name": semantic, "version": 1} if semantic else {}
    return {"type": kind, "optional": True, **named, **more, "field": name}
