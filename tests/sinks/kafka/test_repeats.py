"""At least once, and exactly once for a reader who drops repeats by `headwater.position`."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.errors import SourceUnreachable
from headwater.sinks.kafka.messages import scheme_for
from headwater.testing.crashes import expire_lease
from headwater.testing.memory_rows import attempt_at, memory_rows, table_of, window_up_to
from tests.sinks.kafka.topic_reader import kafka_sink, read_topic
from tests.support.warm_processes import warm_programs

WINDOW = window_up_to(10)
HEADWATER = Path(sys.executable).with_name("headwater")


def without_repeats(messages):
    """What a reader does: the first message of each position counts."""
    return list({read.position: read for read in reversed(messages)}.values())


def pipeline(folder, database, kafka, topic, table="orders"):
    (folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
    (folder / "orders.yaml").write_text(f"""
pipeline: orders
lease: 1s
source:
  sql: {{url: "{database}", table: {table}, cursor: n}}
sinks:
  - kafka: {{brokers: "{kafka.brokers}", topic: {topic}}}
""")


def start(folder, fault=""):
    # Without a PATH there is no Java: whatever passes here has started none.
    environment = {"PATH": "", "HOME": str(folder), "HEADWATER_FAULT": fault}
    program = (
        warm_programs().commands / "headwater" if fault else HEADWATER
    )  # without a fault a test kills it by its pid
    return subprocess.Popen(
        [program, "run", "orders.yaml", "--once", "--json"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(folder):
    """Run when the pipeline is not leased to a dead process any more."""
    expire_lease(folder, "orders")
    out, errors = start(folder).communicate(timeout=120)
    assert json.loads(out)["outcome"] in {"landed", "nothing new"}, errors


@pytest.mark.parametrize(
    ("point", "key"),
    [
        ("land.written", "PRIMARY KEY"),
        ("land.published", "PRIMARY KEY"),
        ("land.published", ""),
        ("advance.before", ""),
    ],
)
def test_a_crash_leaves_repeats_that_their_positions_give_away(kafka, database, tmp_path, point, key):
    topic = kafka.topic(partitions=3)
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE TABLE orders (n bigint NOT NULL, id bigint {key}, note text)")
        connection.execute("INSERT INTO orders SELECT i, i, 'note ' || i % 10 FROM generate_series(1, 500) i")
        if not key:  # rows that are equal in every column
            connection.execute("INSERT INTO orders SELECT n, id, note FROM orders WHERE n <= 50")
    pipeline(tmp_path, database, kafka, topic)
    crashed = start(tmp_path, f"{point}:kill")
    crashed.communicate(timeout=60)
    assert crashed.returncode == -signal.SIGKILL
    with psycopg.connect(database) as connection:
        # The retry meets the rows in another order, among others.
        connection.execute("INSERT INTO orders SELECT i, i, 'late' FROM generate_series(501, 700) i")
        connection.execute("CREATE INDEX by_note ON orders (note, n DESC)")
        connection.execute("CLUSTER orders USING by_note")
    finish(tmp_path)
    messages = read_topic(kafka, topic)
    sent_before = 0 if point == "land.written" else 550 if not key else 500
    assert len(messages) == sent_before + (700 if key else 750)
    with psycopg.connect(database) as connection:
        expected = Counter(connection.execute("SELECT n, id, note FROM orders").fetchall())
    rows = [read.row for read in without_repeats(messages)]
    assert Counter((row["n"], row["id"], row["note"]) for row in rows) == expected


def test_ten_kills_at_random_moments_lose_nothing(kafka, database, tmp_path):
    topic = kafka.topic(partitions=3)
    pipeline(tmp_path, database, kafka, topic)
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE orders (n bigint NOT NULL, id bigint PRIMARY KEY, note text)")
    chance = random.Random(4)
    killed = 0
    for attempt in range(10):
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO orders SELECT i, i, repeat('x', 50) FROM generate_series(%s::int, %s::int) i",
                [attempt * 3000 + 1, attempt * 3000 + 3000],
            )
        child = start(tmp_path)
        try:
            child.communicate(timeout=chance.uniform(0.3, 2.0))
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate(timeout=60)
            killed += 1
    finish(tmp_path)
    finish(tmp_path)
    assert killed
    ids = sorted(read.row["id"] for read in without_repeats(read_topic(kafka, topic)))
    assert ids == list(range(1, 30_001))


@pytest.mark.spark
@pytest.mark.parametrize("key", [("id",), ()])
def test_a_task_that_fails_after_others_have_sent_leaves_repeats_of_the_same_positions(kafka, spark, key):
    topic = kafka.topic(partitions=2)
    tables = (table_of([1, 2, 2]), table_of([2, 3])) if not key else (table_of([1, 2]), table_of([3]))
    attempt = attempt_at(WINDOW, spark=lambda: spark)
    broken = memory_rows("orders", tables, key=key, counted=False, error=SourceUnreachable("gone"))
    with pytest.raises(SourceUnreachable):
        kafka_sink(kafka, topic).land(attempt, broken)
    sink = kafka_sink(kafka, topic)
    for run in ("run-2", "run-3"):
        again = attempt_at(WINDOW, run=run, spark=lambda: spark)
        sink.land(again, memory_rows("orders", tables, key=key, counted=False))
    rows = [read.row["id"] for read in without_repeats(read_topic(kafka, topic))]
    assert sorted(rows) == ([1, 2, 3] if key else [1, 2, 2, 2, 3])


def test_the_position_of_a_row_is_its_pipelines_streams_and_windows_own():
    value = b'{"id":1}'
    outcome = {
        scheme_for(pipeline, stream, window, unique=True, keyed=True).digest(value)
        for pipeline in ("a", "b")
        for stream in ("s", "t")
        for window in ("1", "2")
    }
    assert len(outcome) == 8


@given(st.lists(st.lists(st.integers(0, 12), max_size=40), max_size=12))
def test_equal_rows_are_numbered_from_first_to_last_however_they_are_cut(chunks):
    positions = scheme_for("p", "s", "w", unique=False, keyed=False).positions_of(None)
    digest = scheme_for("p", "s", "w", unique=True, keyed=True).digest
    counts = Counter()
    for chunk in chunks:
        expected = []
        for number in chunk:
            value = str(number).encode()
            expected.append(f"{digest(value)}.{counts[number]}" if counts[number] else digest(value))
            counts[number] += 1
        assert positions([str(number).encode() for number in chunk]) == expected


def test_equal_rows_are_numbered_and_those_of_two_tasks_stay_apart():
    scheme = scheme_for("p", "s", "w", unique=False, keyed=False)
    alone = scheme.positions_of(None)
    first, second, other = alone([b"a", b"a", b"b"])
    assert second == f"{first}.1"
    assert alone([b"a"]) == [f"{first}.2"]
    assert other != first
    assert scheme.positions_of(0)([b"a"]) != scheme.positions_of(1)([b"a"])
    keyed = scheme_for("p", "s", "w", unique=False, keyed=True)
    assert keyed.positions_of(0)([b"a", b"a"]) == keyed.positions_of(1)([b"a", b"a"]) == [first, f"{first}.1"]
