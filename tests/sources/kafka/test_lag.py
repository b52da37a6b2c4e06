"""How far a mark is behind, in messages and in time."""

from __future__ import annotations

import json
import time
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.model.protocols.source import MeasuresLag
from tests.sources.kafka.poller import Poller, numbers, send
from tests.sources.kafka.test_traps import remove_before
from tests.support.stack import KafkaForTests


def test_lag_counts_what_is_unread_and_how_long_the_oldest_of_it_waits(kafka: KafkaForTests):
    topic = kafka.topic(partitions=3)
    send(kafka.brokers, topic, numbers(0, 5))
    poller = Poller(kafka.brokers, topic)
    assert isinstance(poller.source, MeasuresLag)
    poller.poll()
    assert [lag.behind for lag in poller.source.lag(poller.mark)] == [0, 0, 0]
    hour_ago = round((time.time() - 3600) * 1000)
    send(kafka.brokers, topic, [b"old"], timestamp=hour_ago)
    send(kafka.brokers, topic, numbers(0, 7))
    send(kafka.brokers, topic, [b"x"], partition=2)
    first, second, third = poller.source.lag(poller.mark)
    assert (first.position, first.end, first.behind) == (5, 13, 8)
    assert 3600 <= first.seconds < 7200
    assert (second.behind, second.seconds) == (0, None)
    assert third.behind == 1
    assert third.seconds < 3600


def test_the_commands_show_positions_and_lag_and_a_gap_is_skipped_on_record(kafka: KafkaForTests, tmp_path: Path):
    topic = kafka.topic(partitions=2)
    send(kafka.brokers, topic, numbers(0, 5))
    (tmp_path / "orders.yaml").write_text(
        f"pipeline: orders\nsource:\n  kafka: {{brokers: '{kafka.brokers}', topics: {topic}, format: text}}\n"
        f"sinks:\n  - files: {{path: out}}\n"
    )

    def headwater(*words: str) -> dict:
        done = CliRunner().invoke(app, [*words, "--project", str(tmp_path), "--json"])
        return json.loads(done.stdout.splitlines()[-1])

    file = str(tmp_path / "orders.yaml")
    assert headwater("plan", file)["lag"]["messages"] == 5
    assert headwater("run", file, "--once")["outcome"] == "landed"
    send(kafka.brokers, topic, numbers(5, 9))
    shown = headwater("marks", "orders")
    assert shown["mark"]["topics"] == {topic: {"0": 5, "1": 0}}
    assert shown["lag"]["partitions"][0] == {
        "stream": topic,
        "partition": "0",
        "position": 5,
        "end": 9,
        "messages": 4,
        "seconds": shown["lag"]["seconds"],
    }
    assert headwater("status")["pipelines"][0]["lag"]["messages"] == 4
    remove_before(kafka, topic, 7)
    failed = headwater("run", file, "--once")
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "source-changed")
    assert headwater("rewind", "orders", "--skip-gap", "--why", "lost", "--yes")["mark"]["topics"][topic]["0"] == 7
    assert headwater("run", file, "--once")["rows"]["landed"] == 2
    newest = headwater("history", "orders")["history"]
    assert [entry["why"] for entry in newest if entry["kind"] == "rewound"] == ["lost"]
