"""Rows are told while they land, each once, and in the end exactly as many as have landed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.conftest import wait_until

from headwater.sinks.tally import Tally, Wire, counted, listening, open_ear, unheard

BATCH = pa.record_batch({"id": [1, 2, 3]})


def test_a_part_that_is_tried_again_is_told_once() -> None:
    told: list[int] = []
    tally = Tally(told.append)
    for part, rows in [(0, 10), (1, 5), (0, 30), (0, 4), (0, 20), (0, 40)]:
        tally.part(part, rows)
    tally.at_least(45)
    assert told == [10, 5, 20, 10]


def test_what_was_not_heard_is_told_at_the_end() -> None:
    told: list[int] = []
    tally = Tally(told.append)
    tally.part(3, 10)
    tally.at_least(45)
    tally.at_least(45)
    tally.part(3, 12)
    assert told == [10, 35]


def test_a_part_says_in_the_end_how_many_rows_it_had() -> None:
    said: list[tuple[int, int]] = []
    assert list(counted([BATCH, BATCH], 7, lambda part, rows: said.append((part, rows)))) == [BATCH, BATCH]
    assert said == [(7, 6)]


@pytest.mark.spark
def test_only_who_was_given_the_wire_is_heard(spark) -> None:
    told: list[int] = []
    with listening(spark, Tally(told.append)) as report:
        assert isinstance(report, Wire)
        assert report.host == "127.0.0.1"
        Wire(report.host, report.port, b"x" * len(report.token))(0, 1000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for noise in (b"", b"noise", report.token, b"x" * 2000):
                stranger.sendto(noise, (report.host, report.port))
        report(0, 12)
        wait_until(lambda: told)
    assert told == [12]
    report(0, 5000)  # nobody is there any more, and nothing happens
    assert str(report.token) not in repr(report)


def test_a_driver_that_cannot_listen_lands_without_a_live_count() -> None:
    assert open_ear("host.invalid", "127.0.0.1") is None
    assert open_ear("127.0.0.1", "192.0.2.1") is None, "not an address of this machine"
    unheard(0, 5)
    ear = open_ear("[::1]", "127.0.0.1")
    assert ear is not None
    with ear.socket:
        assert ear.host == "::1"


RETRY = """
import sys, time
from pathlib import Path
import pyarrow as pa
from pyspark.sql import SparkSession
from headwater.sinks.tasks import run_tasks
from headwater.sinks.tally import Tally, counted, listening

failed, told = Path(sys.argv[1]), []

def batches(fails_once):
    for _ in range(40):
        yield pa.record_batch({"id": list(range(50))})
        time.sleep(0.03)  # slower than the rhythm of the reports
    if fails_once and not failed.exists():
        failed.touch()
        raise ConnectionError("the first try fails")

master = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
with master.getOrCreate() as spark, listening(spark, Tally(told.append)) as report:
    def work(number):
        yield b"%d" % sum(batch.num_rows for batch in counted(batches(number == 1), number, report))
    done = run_tasks(spark, work, range(3), "counting")
assert failed.exists()
print(sum(map(int, done)), sum(told), min(told), len(told))
"""


@pytest.mark.spark
def test_rows_of_a_task_that_failed_and_was_tried_again_are_not_told_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RETRY, str(tmp_path / "failed")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    landed, told, smallest, calls = map(int, done.stdout.split())
    assert landed == told == 6000
    assert smallest > 0
    assert calls > 3
