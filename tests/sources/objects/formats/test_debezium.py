"""Events in files of a folder or a bucket: alone on their lines, and as Connect's S3 sinks write them."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError
from headwater.model.position.marks import ObjectsMark
from headwater.model.protocols.source import Claim
from headwater.sources.objects.content import ReadSettings
from headwater.sources.objects.rows import replay, window_rows
from headwater.sources.objects.schema import infer_state
from tests.sources.debezium.reading import as_bytes, event, field, recorded, with_schema
from tests.sources.objects.object_folder import ObjectFolder
from tests.sources.objects.objects_source import ObjectsPipeline

MORE = {"topic": "src.public.orders", "partition": 0}


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder(tmp_path)


class Reader:
    """One stream over all objects of a folder, its mark kept as a store keeps it."""

    def __init__(self, folder: ObjectFolder, **settings: object) -> None:
        self.folder = folder
        self.settings = ObjectsSourceSettings(url=folder.container.address, format="debezium", metadata=[], **settings)
        self.mark = ObjectsMark(0)

    def poll(self) -> list[dict]:
        state = infer_state(self.mark.state, self.folder.pages(), self.settings, self.folder.container)
        end = ObjectsMark.from_json(json.loads(json.dumps(ObjectsMark(1).with_state(state).to_json())))
        self.rows = window_rows(
            list(self.folder.pages()), self.settings, self.folder.container, (self.mark, end), stream="orders", cores=2
        )
        self.mark = end
        assert self.rows.changes is not None
        return self.folder.read(self.rows.splits)


def bare(each: dict) -> object:
    return each["value"]


def connect(each: dict) -> object:
    """As Confluent's and Aiven's sinks write a record with its key and headers."""
    headers = [
        {"key": name, "value": base64.b64encode(value.encode()).decode()} for name, value in each.get("headers", [])
    ]
    return {
        "key": each["key"],
        "value": each["value"],
        "offset": each["offset"],
        "timestamp": "2026-03-02T08:30:00Z",
        "headers": headers,
    }


def texts(each: dict) -> object:
    """As they are where a converter made texts of key and value."""
    value = None if each["value"] is None else json.dumps(each["value"])
    headers = [{"name": name, "value": header} for name, header in each.get("headers", [])]
    return {"headers": headers, "key": json.dumps(each["key"]), "value": value, **MORE}


def lines(events: list[dict], form) -> bytes:
    return b"".join(as_bytes(form(each)) + b"\n" for each in events if form is not bare or each["value"] is not None)


@pytest.mark.parametrize("form", [bare, connect, texts])
def test_the_rows_are_those_of_the_topic(folder: ObjectFolder, form):
    events = recorded()
    folder.put("orders/partition=0/orders+0+0000000000.json", lines(events[:20], form))
    folder.put("orders/partition=0/orders+0+0000000020.json.gz", gzip.compress(lines(events[20:], form)))
    reader = Reader(folder, debezium={"key": ["id"]} if form is bare else {})
    polled = reader.poll()
    assert folder.rejects == []
    assert reader.rows.key == ("id",)
    assert reader.rows.order == ("_position",)
    assert reader.rows.changes.table_columns[:3] == ("id", "customer", "amount")
    wanted = [each["value"] for each in events if each["value"] is not None]
    assert [row["_op"] for row in polled] == [value["op"] for value in wanted]
    assert [row["id"] for row in polled] == [(value["after"] or value["before"])["id"] for value in wanted]
    assert [row["customer"] for row in polled] == [value["after"] and value["after"]["customer"] for value in wanted]
    moved = [row["_old_key"] for row in polled if row["_old_key"]]
    assert moved == ([] if form is bare else ["[3]"])


def test_events_are_named_by_their_object_and_line(folder: ObjectFolder):
    folder.put("1", b"".join(as_bytes(event("c", {"id": n})) + b"\n" for n in range(3)))
    options = {"url": folder.container.address, "format": "debezium", "debezium": {"key": ["id"]}}
    reader = Reader(folder, debezium={"key": ["id"]})
    reader.settings = ObjectsSourceSettings.model_validate(options)
    assert [row["object_row"] for row in reader.poll()] == [1, 2, 3]
    assert (reader.rows.changes.event_key, reader.rows.changes.arrival) == (
        ("object_url", "object_row"),
        "object_modified",
    )
    reader.settings = ObjectsSourceSettings.model_validate({**options, "metadata": ["url"]})
    reader.poll()
    assert (reader.rows.changes.event_key, reader.rows.changes.arrival) == ((), "")


def test_a_document_of_many_events_is_read_too(folder: ObjectFolder):
    events = [each for each in recorded() if each["value"] is not None]
    folder.put("a.json", json.dumps([connect(each) for each in events], indent=1))
    assert len(Reader(folder).poll()) == len(events)
    assert folder.rejects == []


def test_columns_are_found_once_widened_and_kept_in_the_mark(folder: ObjectFolder):
    def change(kind: str, value: object) -> bytes:
        return (
            as_bytes(with_schema([field("id", "int32"), field("v", kind)], event("c", {"id": 1, "v": value}))) + b"\n"
        )

    folder.put("1", change("int32", 5))
    reader = Reader(folder, debezium={"key": ["id"]})
    assert [row["v"] for row in reader.poll()] == [5]
    assert reader.rows.schema.field("v").type == pa.int32()
    folder.put("2", change("int64", 2**40))
    assert [row["v"] for row in reader.poll()] == [5, 2**40]
    assert reader.rows.schema.field("v").type == pa.int64()
    assert reader.rows.key == ("id",)


def test_an_object_that_is_cut_into_pieces_gives_every_event_once(folder: ObjectFolder):
    folder.put("1", b"".join(as_bytes(event("c", {"id": n, "name": "x" * 900})) + b"\n" for n in range(20_000)))
    reader = Reader(folder, split_bytes="4MB", debezium={"key": ["id"]})
    assert sorted(row["id"] for row in reader.poll()) == list(range(20_000))
    assert len(reader.rows.splits) > 1


def test_what_cannot_be_kept_is_a_reject_and_comes_back_when_it_can(folder: ObjectFolder):
    good, bad = (as_bytes({"value": event("c", {"id": n, "v": v}), "key": {"id": n}}) for n, v in ((1, 5), (2, "x")))
    folder.put("1", good + b"\n" + bad + b"\n" + b'{"id": 3}\n')
    reader = Reader(folder, schema="id int, v int")
    assert [row["id"] for row in reader.poll()] == [1]
    assert [(reject.location["row"], reject.reason[:9]) for reject in folder.rejects] == [
        (2, "after: v:"),
        (3, "no change"),
    ]
    chosen = ObjectsSourceSettings(
        url=folder.container.address, format="debezium", schema="id int, v string", metadata=["row"]
    )
    (rows,) = replay(folder.rejects, ReadSettings.of(chosen, reader.mark.state, "orders"), folder.container)
    rejects: list = []
    again = [row for split in rows.splits for batch in split.read(rejects.append) for row in batch.to_pylist()]
    assert [(row["id"], row["v"], row["object_row"]) for row in again] == [(2, "x", 2)]
    assert [reject.location["row"] for reject in rejects] == [3]
    assert rows.changes is not None


def test_objects_of_flattened_events_are_refused_before_they_are_read(folder: ObjectFolder):
    folder.put("1", b'{"id": 1, "name": "x"}\n')
    with pytest.raises(InputError, match="ExtractNewRecordState"):
        Reader(folder).poll()


def test_events_of_two_tables_are_two_streams(folder: ObjectFolder):
    folder.put("1", b"".join(as_bytes(event("c", {"id": 1}, table=name)) + b"\n" for name in ("orders", "items")))
    with pytest.raises(InputError, match="several tables: items, orders"):
        Reader(folder).poll()


def test_the_key_is_found_where_the_columns_are_declared(tmp_path: Path):
    events = [
        {"value": event("c", {"id": 1, "v": 5}), "key": {"id": 1}},
        {"value": event("d", None, {"id": 1, "v": 0}), "key": {"id": 1}},
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_bytes(b"".join(as_bytes(one) + b"\n" for one in events))
    pipeline = ObjectsPipeline(
        tmp_path, url=str(tmp_path / "in"), format="debezium", schema="id int, v int", metadata=[]
    )
    plan = pipeline.source.plan(None, claim=Claim(pipeline.book.lease, "run"))
    with pipeline.source.read(plan.window) as (rows,):
        read = [row for split in rows.splits for batch in split.read() for row in batch.to_pylist()]
    assert rows.key == ("id",)
    assert [(row["_op"], row["id"], row["v"]) for row in read] == [("c", 1, 5), ("d", 1, None)]
