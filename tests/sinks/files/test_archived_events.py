"""Debezium's events that the files sink archived are read back from objects as they would be from their topic."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.config.project import S3Settings
from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.window import Window
from headwater.sinks.files import open_files
from headwater.testing.memory_rows import attempt_at, memory_rows
from tests.sinks.files.test_connect_layout import HEADERS
from tests.sources.debezium.reading import Stream, as_bytes, messages_of, recorded, rows
from tests.sources.objects.formats.test_debezium import Reader
from tests.sources.objects.object_folder import ObjectFolder


def messages(events: list[dict]) -> pa.Table:
    """As the kafka source gives them with `format: text`."""
    return pa.table(
        {
            "value": pa.array([as_bytes(each["value"]) for each in events], pa.binary()).cast(pa.string()),
            "kafka_partition": pa.array([0] * len(events), pa.int32()),
            "kafka_offset": pa.array(range(len(events)), pa.int64()),
            "kafka_key": pa.array([as_bytes(each["key"]) for each in events], pa.binary()).cast(pa.string()),
            "kafka_headers": pa.array(
                [
                    [{"name": name, "value": value.encode()} for name, value in each.get("headers", [])]
                    for each in events
                ],
                HEADERS,
            ),
        }
    )


@pytest.mark.parametrize("fields", ["all", "value"])
def test_archived_events_are_those_of_the_topic(tmp_path: Path, fields: str):
    events = recorded()
    table = messages(events)
    settings = FilesSinkSettings(path="archive", layout="connect", fields=fields, file_offsets=7)
    window = Window(OffsetsMark({"orders": {0: 0}}), OffsetsMark({"orders": {0: len(events)}}))
    open_files(settings, "1:files", tmp_path, S3Settings()).land(attempt_at(window), memory_rows("orders", (table,)))

    folder = ObjectFolder(tmp_path / "folder")
    for file in sorted((tmp_path / "archive").rglob("*.json")):
        folder.put(str(file.relative_to(tmp_path / "archive")), file.read_bytes())
    read = Reader(folder, debezium={"key": ["id"]}).poll()
    assert folder.rejects == []

    expected = rows(Stream(key=["id"]).poll(messages_of(events)))
    if fields == "value":  # the former key of a row stands in a header
        expected = [{**row, "_old_key": None} for row in expected]
    assert read == expected
