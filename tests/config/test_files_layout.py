"""`layout: connect` takes messages as they came: what does not fit is told before anything runs (G12)."""

from pathlib import Path

import pytest

from headwater.config.load import load_pipelines
from headwater.model.errors import SettingsError

KAFKA = "kafka: {brokers: b, topics: [orders], format: text, metadata: [partition, offset, key, headers]}"


def load(folder: Path, files: str, source: str = KAFKA, more: str = ""):
    text = f"pipeline: archive\nsource: {{{source}}}\n{more}sinks: [files: {{path: out, {files}}}]\n"
    (folder / "archive.yaml").write_text(text)
    return [file.settings for file in load_pipelines([folder / "archive.yaml"])]


@pytest.mark.parametrize("files", ["layout: connect", "layout: connect, format: json, fields: value, file_offsets: 5"])
def test_messages_of_a_topic_fit(tmp_path, files):
    (pipeline,) = load(tmp_path, files)
    assert pipeline.sinks[0].files.layout == "connect"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("layout: connect, format: parquet", "layout: connect writes JSON; leave format out"),
        ("layout: connect, publish: rename", "layout: connect has no windows to publish; leave publish out"),
        ("fields: value", "fields and file_offsets belong to layout: connect"),
        ("file_offsets: 3", "fields and file_offsets belong to layout: connect"),
        ("layout: conect", "did you mean 'connect'?"),
        ("layout: connect, file_offsets: 0", "file_offsets"),
    ],
)
def test_settings_that_do_not_go_together_are_told(tmp_path, files, said):
    with pytest.raises(SettingsError, match=r"archive\.yaml:3") as caught:
        load(tmp_path, files)
    assert said in str(caught.value)


def test_a_path_with_a_stream_is_told(tmp_path):
    (tmp_path / "a.yaml").write_text(
        f'pipeline: a\nsource: {{{KAFKA}}}\nsinks: [files: {{path: "x/{{stream}}", layout: connect}}]\n'
    )
    with pytest.raises(SettingsError, match=r"has a folder per topic; leave \{stream\} out of path"):
        load_pipelines([tmp_path / "a.yaml"])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('sql: {url: "sqlite:///x.db", table: t, cursor: id}', "named by Kafka's offsets, and the source is sql"),
        ("kafka: {brokers: b, topics: [t]}", "write source.kafka.format: text (or binary)"),
        ("kafka: {brokers: b, topics: [t], format: text, metadata: [partition]}", "need offset among"),
        ("kafka: {brokers: b, topics: [t], format: text, metadata: [offset]}", "need partition among"),
        (
            "kafka: {brokers: b, topics: [t], format: text, metadata: {offset: o, partition: p}}",
            "find offset in kafka_offset; write source.kafka.metadata as a list",
        ),
    ],
)
def test_sources_that_have_no_such_messages_are_told(tmp_path, source, said):
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, "layout: connect", source)
    assert said in str(caught.value)


def test_a_transform_is_told(tmp_path):
    with pytest.raises(SettingsError, match="hold messages unchanged; remove the transform"):
        load(tmp_path, "layout: connect", more="transform: SELECT * FROM rows\n")
