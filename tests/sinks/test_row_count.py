"""Rows are counted while they land, each once, and in the end exactly as many as have landed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.sinks.tasks import CountSender, RowCounter, count_rows, ignore_count, open_receiver, receive_counts
from tests.support.wait import wait_until

BATCH = pa.record_batch({"id": [1, 2, 3]})


def test_a_part_that_is_tried_again_is_told_once() -> None:
    counts: list[int] = []
    counter = RowCounter(counts.append)
    for part, rows in [(0, 10), (1, 5), (0, 30), (0, 4), (0, 20), (0, 40)]:
        counter.part(part, rows)
    counter.at_least(45)
    assert counts == [10, 5, 20, 10]


def test_what_was_not_heard_is_told_at_the_end() -> None:
    counts: list[int] = []
    counter = RowCounter(counts.append)
    counter.part(3, 10)
    counter.at_least(45)
    counter.at_least(45)
    counter.part(3, 12)
    assert counts == [10, 35]


def test_a_part_says_in_the_end_how_many_rows_it_had() -> None:
    said: list[tuple[int, int]] = []
    assert list(count_rows([BATCH, BATCH], 7, lambda part, rows: said.append((part, rows)))) == [BATCH, BATCH]
    assert said == [(7, 6)]


@pytest.mark.spark
def test_only_counts_with_the_token_are_received(spark) -> None:
    counts: list[int] = []
    with receive_counts(spark, RowCounter(counts.append)) as report:
        assert isinstance(report, CountSender)
        assert report.host == "127.0.0.1"
        CountSender(report.host, report.port, b"x" * len(report.token))(0, 1000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for noise in (b"", b"noise", report.token, b"x" * 2000):
                stranger.sendto(noise, (report.host, report.port))
        report(0, 12)
        wait_until(lambda: counts)
    assert counts == [12]
    report(0, 5000)  # the receiver is closed: nothing happens
    assert str(report.token) not in repr(report)


def test_a_driver_that_cannot_listen_lands_without_a_live_count() -> None:
    assert open_receiver("host.invalid", "127.0.0.1") is None
    assert open_receiver("127.0.0.1", "192.0.2.1") is None, "not an address of this machine"
    ignore_count(0, 5)
    receiver = open_receiver("[::1]", "127.0.0.1")
    assert receiver is not None
    with receiver.socket:
        assert receiver.host == "::1"


RETRY = """
import sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from headwater.sinks.tasks import run_tasks
from headwater.sinks.tasks import RowCounter, count_rows, receive_counts

failed, counts = Path(sys.argv[1]), []

def batches(fails_once):
    for _ in range(40):
        yield pa.record_batch({"id": list(range(50))})
        time.sleep(0.03)  # slower than the rhythm of the reports
    if fails_once and not failed.exists():
        failed.touch()
        raise ConnectionError("the first try fails")

master = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
with master.getOrCreate() as spark, receive_counts(spark, RowCounter(counts.append)) as report:
    def work(number):
        yield b"%d" % sum(batch.num_rows for batch in count_rows(batches(number == 1), number, report))
    done = run_tasks(spark, work, range(3), "counting")
assert failed.exists()
print(sum(map(int, done)), sum(counts), min(counts), len(counts))
"""


@pytest.mark.spark
def test_rows_of_a_task_that_failed_and_was_tried_again_are_not_counted_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RETRY, str(tmp_path / "failed")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    landed, counts, smallest, calls = map(int, done.stdout.split())
    assert landed == counts == 6000
    assert smallest > 0
    assert calls > 3
