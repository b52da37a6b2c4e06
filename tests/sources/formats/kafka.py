"""Cases as messages of a topic: decoded as the source decodes them, without a broker.

Messages come through two doors: one by one through `Source.replay`, and many at once through the decoder that a split
opens. Columns are inferred as `sources/kafka/decoder.py` and `sources/kafka/debezium.py` do it for a window.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from headwater.config.pipeline import SourceSettings
from headwater.model.errors import InputError
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.stream_state import StreamState, positions
from headwater.model.rows import Reject
from headwater.sources.debezium.inference import ColumnInference
from headwater.sources.json.columns import check_names, infer_values, with_new
from headwater.sources.open import open_source
from tests.sources.formats.case import AvroRecords, Case, Events, Outcome, Payload, Records, as_ddl, refusal, value_of

TOPIC = "shop"
AVRO_SCHEMA = "r.avsc"
_OFFSET = "kafka_offset"
_CROWD = 20  # more than are looked at one by one


@dataclass(frozen=True)
class TestMessage:
    """As librdkafka gives it."""

    payload: bytes | None
    number: int  # its offset
    key_bytes: bytes | None = None
    message_headers: tuple[tuple[str, bytes | None], ...] = ()

    __test__ = False

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        return 0, -1

    def key(self) -> bytes | None:
        return self.key_bytes

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        return self.message_headers


def settings_of(case: Case, folder: Path, **more: object) -> SourceSettings:
    """A source of the case; the file that `avro_schema` names is written."""
    options: dict[str, Any] = {"brokers": "localhost:1", "topics": TOPIC, "format": case.format, "metadata": ["offset"]}
    options |= dict(case.options) | ({"schema": case.schema} if case.schema is not None else {})
    avro = next((one.schema for one in case.windows if isinstance(one, AvroRecords)), options.get("avro_schema"))
    if avro:
        (folder / AVRO_SCHEMA).write_text(json.dumps(avro))
        options["avro_schema"] = AVRO_SCHEMA
    return SourceSettings.model_validate({"kafka": {**options, **more}})


def messages_of(payload: Payload) -> list[TestMessage]:
    if isinstance(payload, AvroRecords):
        return [TestMessage(_encoded(payload, one), number) for number, one in enumerate(payload.records)]
    if isinstance(payload, Events):
        return [
            TestMessage(_json(one["value"]), number, _json(one.get("key")), _headers(one))
            for number, one in enumerate(payload.events)
        ]
    assert isinstance(payload, Records)
    return [TestMessage(value, number) for number, value in enumerate(payload.values)]


def outcomes(case: Case, folder: Path) -> Iterator[tuple[str, Outcome]]:
    """By the way that the messages take."""
    settings, known = settings_of(case, folder), StreamState()
    for window in case.windows:
        messages = messages_of(window)
        try:
            known = inferred(settings, messages, known)
            mark = OffsetsMark({TOPIC: {0: 0}}, {}, {TOPIC: known})
            with open_source(settings, folder, 2).replay([as_reject(one) for one in messages], mark) as streams:
                outcomes_by_stream = [list(_read(case, rows, messages)) for rows in streams]
        except Exception as error:  # noqa: BLE001 - that, too, is an outcome
            yield "refused", refusal(error, f"{TOPIC}: ", f"{folder / AVRO_SCHEMA}: ")
            return
    if not outcomes_by_stream:
        yield "no rows", Outcome()
        return
    yield from outcomes_by_stream[0]


def inferred(settings: SourceSettings, messages: Sequence[TestMessage], known: StreamState) -> StreamState:
    """Columns and key of the topic, with what a window brings."""
    kafka = settings.kafka
    assert kafka is not None
    reserved = set(kafka.metadata_columns.values())
    if kafka.format == "debezium":
        look = ColumnInference(TOPIC, kafka.debezium, kafka.schema)
        if not look.complete:
            look.see([one.value() for one in messages], [one.key() for one in messages])
        columns = look.columns(known.columns, reserved)
        key = look.key(known.key, columns)
        return StreamState(columns=columns or known.columns, key_positions=positions(key or known.key))
    if kafka.format != "json" or kafka.schema is not None:
        return known
    seen_types: dict[str, set[str]] = {}
    infer_values((one.value() for one in messages), seen_types)
    columns = with_new(known.columns, seen_types)
    if not columns:
        raise InputError(f"{TOPIC}: no message of the window is a JSON object with a field")
    check_names(TOPIC, columns, reserved)
    return replace(known, columns=columns)


def as_reject(message: TestMessage) -> Reject:
    """What `Source.replay` takes a message from."""
    more: dict[str, Any] = {"key": _base64(message.key()), "timestamp": None}
    more["headers"] = [[name, _base64(value)] for name, value in message.headers()]
    if message.value() is None:
        more["tombstone"] = True
    location: dict[str, str | int] = {"topic": TOPIC, "partition": 0, "offset": message.offset()}
    return Reject(TOPIC, location, "", message.value() or b"", more)


def _read(case: Case, rows: Any, messages: Sequence[TestMessage]) -> Iterator[tuple[str, Outcome]]:
    assert rows.splits is not None
    (split,) = rows.splits
    rejects: list[Reject] = []
    alone = list(split.read(rejects.append))  # type: ignore[attr-defined]
    yield "one by one", outcome_of(case, rows, alone, rejects, messages)
    crowd = [
        TestMessage(one.payload, one.offset() + turn * len(messages), one.key_bytes, one.message_headers)
        for turn in range(_CROWD)
        for one in messages
    ]
    rejects.clear()
    batch = split.decoding.decoder().batch(crowd, rejects.append)  # type: ignore[attr-defined]
    for turn in range(_CROWD if messages else 0):
        begin, end = turn * len(messages), (turn + 1) * len(messages)
        some = [reject for reject in rejects if begin <= int(reject.location["offset"]) < end]
        mine = [] if batch is None else [batch.filter(pa.compute.is_in(batch[_OFFSET], pa.array(range(begin, end))))]
        yield f"in a crowd, turn {turn}", outcome_of(case, rows, mine, some, messages, begin)


def outcome_of(
    case: Case,
    rows: Any,
    batches: Sequence[pa.RecordBatch],
    rejects: Sequence[Reject],
    messages: Sequence[TestMessage],
    begin: int = 0,
) -> Outcome:
    """Numbers are offsets from 1; every reject holds its message's bytes."""
    schema: pa.Schema = rows.schema
    content = list(rows.changes.table_columns if rows.changes else ()) or [
        name for name in schema.names if name != _OFFSET
    ]
    rows_by_number: dict[int, tuple[Any, ...]] = {}
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == schema
        for location in range(batch.num_rows):
            row = tuple(value_of(batch[name][location]) for name in case.shows or content)
            rows_by_number[batch[_OFFSET][location].as_py() - begin] = row
    reasons: dict[int | None, str] = {}
    for reject in rejects:
        number = int(reject.location["offset"]) - begin
        assert reject.payload == (messages[number].value() or b"")
        assert number not in rows_by_number
        reasons[number + 1] = reject.reason
    if case.format != "debezium" and case.options.get("tombstones") != "skip":
        assert {*rows_by_number, *(number - 1 for number in reasons if number)} == set(range(len(messages)))
    columns = as_ddl([schema.field(name) for name in content])
    return Outcome(columns, tuple(row for _, row in sorted(rows_by_number.items())), reasons)


def _encoded(payload: AvroRecords, record: Mapping[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(payload.schema), dict(record))
    return out.getvalue()


def _json(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return json.dumps(value, separators=(",", ":")).encode()


def _headers(event: Mapping[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, value.encode()) for name, value in event.get("headers", ()))


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
