"""`headwater connect` on a real worker: apply as often as you like, see what failed and why, and never a secret."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Consumer

from headwater.services.connect.client import ConnectClient
from tests.services.connect.proxy import proxy
from tests.services.stack.test_connect import drop_slot
from tests.support.command_line import Headwater, Ran
from tests.support.stack import KafkaForTests
from tests.support.wait import wait_until

TEXT = "org.apache.kafka.connect.storage.StringConverter"


@pytest.fixture
def name(connect: str) -> Iterator[str]:
    """A connector's name that nobody else has; what begins with it is deleted after the test."""
    unique = f"c{uuid.uuid4().hex[:10]}"
    yield unique
    client = ConnectClient(connect)
    for each in client.names():
        if each.startswith(unique):
            client.delete(each)


@pytest.fixture
def hw(headwater: Headwater, connect: str) -> Headwater:
    """`headwater connect … --url` of the run's worker."""

    def run(*arguments: object) -> Ran:
        return headwater("connect", *arguments, "--url", connect)

    return run


def source(name: str, folder: Path, **more: str) -> dict[str, str]:
    """A connector that brings the lines of a file to a topic."""
    (folder / "lines.txt").write_text("one\ntwo\n")
    return {
        "name": name,
        "connector.class": "FileStreamSource",
        "file": str(folder / "lines.txt"),
        "topic": name,
        "key.converter": TEXT,
        "value.converter": TEXT,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def write(folder: Path, document: object, file: str = "c.json") -> Path:
    (folder / file).write_text(json.dumps(document, indent=2))
    return folder / file


def test_apply_creates_then_leaves_alone_then_changes(hw: Headwater, name: str, tmp_path: Path):
    file = write(tmp_path, source(name, tmp_path))
    done = hw("apply", file)
    assert (done.code, done.out) == (0, f"{name}: created; RUNNING, 1 task RUNNING\n"), done.err
    assert hw("apply", file).out == f"{name}: unchanged; RUNNING, 1 task RUNNING\n"
    write(tmp_path, source(name, tmp_path, batch_size="7", my_password="geheim"))  # noqa: S106
    changed = hw("apply", file)
    assert changed.out.splitlines()[1:] == ["  batch.size: – → 7", "  my.password: – → ****"]
    write(tmp_path, source(name, tmp_path, my_password="geheim-2"))  # noqa: S106
    data = hw("apply", file, "--json").json["connectors"][0]
    assert (data["name"], data["outcome"], data["connector"]["state"]) == (name, "changed", "RUNNING")
    assert data["changes"] == [
        {"key": "batch.size", "before": "7", "after": None},
        {"key": "my.password", "before": "****", "after": "****"},
    ]
    assert data["connector"]["tasks"][0]["state"] == "RUNNING"


def test_a_file_may_hold_several_and_each_is_told(hw: Headwater, name: str, tmp_path: Path):
    first, second = source(f"{name}-1", tmp_path), source(f"{name}-2", tmp_path)
    hw("apply", write(tmp_path, first))
    done = hw("apply", write(tmp_path, [first, {"name": second.pop("name"), "config": second}]), "--json")
    assert [(each["name"], each["outcome"]) for each in done.json["connectors"]] == [
        (f"{name}-1", "unchanged"),
        (f"{name}-2", "created"),
    ]


def test_what_a_class_has_against_a_setting_is_told_with_its_place_and_nothing_is_sent(
    hw: Headwater, name: str, tmp_path: Path, connect: str
):
    bad = source(f"{name}-2", tmp_path, tasks_max="many", batch_size="x")
    del bad["topic"]
    file = write(tmp_path, [source(f"{name}-1", tmp_path), bad])
    for command in ("apply", "validate"):
        done = hw(command, file)
        assert done.code == 2
        lines = done.err.splitlines()
        assert any(line.startswith(f"{file}:16:5  tasks.max  Invalid value many") for line in lines), done.err
        assert any(f"{file}:17:5  batch.size  Invalid value x" in line for line in lines)
        assert any(line.startswith(f"{file}  topic  Missing required configuration") for line in lines)
    assert not [each for each in ConnectClient(connect).names() if each.startswith(name)]
    problems = hw("validate", file, "--json").json["error"]["problems"]
    assert {problem["path"] for problem in problems} == {"tasks.max", "batch.size", "topic"}


def test_a_valid_file_is_called_so_and_nothing_is_sent(hw: Headwater, name: str, tmp_path: Path, connect: str):
    file = write(tmp_path, source(name, tmp_path))
    assert hw("validate", file).out == f"{name}: valid\n"
    assert hw("validate", file, "--json").json["connectors"] == [{"name": name, "valid": True}]
    assert name not in ConnectClient(connect).names()


def test_variables_come_from_a_file_where_the_environment_has_none(
    hw: Headwater, name: str, tmp_path: Path, connect: str, monkeypatch: pytest.MonkeyPatch
):
    file = write(tmp_path, source(name, tmp_path, a_word="${WORD}", a_token="${MY_TOKEN}"))  # noqa: S106
    refused = hw("apply", file)
    assert refused.code == 2
    assert "a.word  the environment has no variable WORD; set it, here or in .env, or write $${WORD}" in refused.err
    (tmp_path / ".env").write_text("WORD=of-the-file\nexport MY_TOKEN='geheim'\n")
    (tmp_path / "other.env").write_text("WORD=of-another\n")
    monkeypatch.setenv("MY_TOKEN", "geheimer")
    assert hw("apply", file, "--wait", "0s").code == 0
    config = ConnectClient(connect).config(name)
    assert (config["a.word"], config["a.token"]) == ("of-the-file", "geheimer")
    changed = hw("apply", file, "--env", "other.env", "--wait", "0s")
    assert "  a.word: **** → ${WORD}" in changed.out
    missing = hw("validate", file, "--env", "none.env")
    assert (missing.code, "cannot read none.env: No such file" in missing.err) == (2, True)


@pytest.mark.parametrize("kind", ["confluent", "aiven"])
def test_a_class_that_the_worker_does_not_have_is_told_with_those_it_has(
    hw: Headwater, headwater: Headwater, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    output = headwater("connect", "template", "s3", "--topic", "shop.*", "--bucket", "lake", "--kind", kind)
    (tmp_path / "s3_sink.json").write_text(output.out)
    for command in ("apply", "validate"):
        done = hw(command, "s3_sink.json")
        assert done.code == 2
        assert "s3-sink: the worker at http://127.0.0.1:" in done.err
        assert f"has no connector class {output.out.split('connector.class')[1].split(chr(34))[2]}" in done.err
        assert "it has io.debezium.connector.postgresql.PostgresConnector 3.6.3.Final, org.apache" in done.err
        assert "plugin.path" in done.err


def test_a_class_that_is_misspelt_is_guessed(hw: Headwater, name: str, tmp_path: Path):
    wrong = {**source(name, tmp_path), "connector.class": "io.debezium.connector.postgres.PostgresConnector"}
    done = hw("apply", write(tmp_path, wrong))
    assert "did you mean 'io.debezium.connector.postgresql.PostgresConnector'?" in done.err


def sink(name: str, topic: str, file: Path | str) -> dict[str, str]:
    return {
        "name": name,
        "connector.class": "FileStreamSink",
        "topics": topic,
        "file": str(file),
        "key.converter": TEXT,
        "value.converter": TEXT,
        "consumer.override.auto.offset.reset": "earliest",
    }


def test_a_task_that_fails_is_told_by_its_first_line_and_in_full_on_demand(
    hw: Headwater, name: str, tmp_path: Path, kafka: KafkaForTests
):
    topic = kafka.topic()
    file = write(tmp_path, sink(name, topic, "/nowhere/out.txt"))
    done = hw("apply", file)
    assert done.code == 1
    assert done.out == f"{name}: created; RUNNING, 1 task FAILED\n"
    first = "org.apache.kafka.connect.errors.ConnectException: Couldn't find or create file '/nowhere/out.txt'"
    assert f"error: {name} task 0 failed: {first}" in done.err
    assert f"→ headwater connect status {name} --trace; then headwater connect restart {name}" in done.err

    again = hw("apply", file)
    assert (again.code, again.out) == (1, f"{name}: unchanged; RUNNING, 1 task FAILED\n")
    shown = hw("status", name)
    assert shown.code == 1
    assert f"{name} task 0 failed: {first}" in shown.out
    assert "\tat org.apache" not in shown.out
    task = hw("status", name, "--json").json["connectors"][0]["tasks"][0]
    assert task["error"].startswith(first)
    assert task["cause"] == "java.nio.file.NoSuchFileException: /nowhere/out.txt"
    assert "trace" not in task
    assert "\tat org.apache" in hw("status", name, "--trace").out
    assert "\tat org.apache" in hw("status", name, "--trace", "--json").json["connectors"][0]["tasks"][0]["trace"]

    assert hw("restart", name, "--task", 0).code == 1
    assert hw("restart", name).code == 1
    write(tmp_path, sink(name, topic, tmp_path / "out.txt"))
    mended = hw("apply", file)
    assert (mended.code, mended.out.splitlines()[0]) == (0, f"{name}: changed; RUNNING, 1 task RUNNING")
    assert hw("restart", name, "--task", 0).out == f"{name}: RUNNING, 1 task RUNNING\n"
    assert hw("restart", name, "--json").json["connector"]["state"] == "RUNNING"
    assert hw("status", name).code == 0


def test_offsets_are_shown_of_sources_and_sinks(hw: Headwater, name: str, tmp_path: Path, kafka: KafkaForTests):
    hw("apply", write(tmp_path, source(f"{name}-in", tmp_path, topic=name)))
    values_of(kafka.brokers, name, 2, bytes)  # the topic is there: a sink that came before it would wait for minutes
    hw("apply", write(tmp_path, sink(f"{name}-out", name, tmp_path / "out.txt")))
    wait_until(lambda: (tmp_path / "out.txt").exists() and (tmp_path / "out.txt").read_text() == "one\ntwo\n", 60)

    def shown() -> str:
        return hw("status", f"{name}-in").out + hw("status", f"{name}-out").out

    wait_until(lambda: f"{name}-out is at {name} 0: 2" in shown(), 60)
    wait_until(lambda: f'{name}-in is at {{"filename": "{tmp_path}/lines.txt"}}: {{"position": 8}}' in shown(), 60)
    everyone = hw("status", "--json").json["connectors"]
    assert [each["offsets"] for each in everyone if each["name"] == f"{name}-out"] == [
        [{"partition": {"kafka_partition": 0, "kafka_topic": name}, "offset": {"kafka_offset": 2}}]
    ]


def test_pause_resume_stop_and_delete_do_what_they_say(hw: Headwater, name: str, tmp_path: Path, connect: str):
    hw("apply", write(tmp_path, source(name, tmp_path)))
    assert hw("pause", name).out == f"{name}: PAUSED, 1 task PAUSED\n"
    assert hw("apply", tmp_path / "c.json").out == f"{name}: unchanged; PAUSED, 1 task PAUSED\n"
    assert hw("resume", name).out == f"{name}: RUNNING, 1 task RUNNING\n"
    assert hw("stop", name).out == f"{name}: STOPPED, no tasks\n"
    assert hw("resume", name, "--json").json["connector"]["state"] == "RUNNING"
    refused = hw("delete", name)
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert f"deletes the connector {name} (FileStreamSource)" in refused.err
    assert name in ConnectClient(connect).names()
    assert hw("delete", name, "--yes").out == f"{name}: deleted\n"
    assert name not in ConnectClient(connect).names()


@pytest.mark.parametrize("command", ["status", "restart", "pause", "resume", "stop", "delete"])
def test_a_name_that_nobody_has_is_told_with_those_that_are_there(
    hw: Headwater, name: str, tmp_path: Path, command: str
):
    hw("apply", write(tmp_path, source(name, tmp_path)), "--wait", "0s")
    done = hw(command, "nobody", *(["--yes"] if command == "delete" else []))
    assert done.code == 2
    assert "error: no connector 'nobody' at http://127.0.0.1:" in done.err
    assert name in done.err


def test_a_task_that_is_not_there_and_a_wait_that_is_none_are_told(hw: Headwater, name: str, tmp_path: Path):
    file = write(tmp_path, source(name, tmp_path))
    hw("apply", file)
    done = hw("restart", name, "--task", 3)
    assert (done.code, f"{name} has no task 3\n  → its tasks: 0" in done.err) == (2, True)
    for command in (["apply", file], ["restart", name], ["stop", name]):
        refused = hw(*command, "--wait", "soon")
        assert (refused.code, "--wait soon: not a duration" in refused.err) == (2, True)
    assert hw("status", name).code == 0


def test_what_does_not_run_in_time_is_told(headwater: Headwater, connect: str, tmp_path: Path):
    file = write(tmp_path, source("slow", tmp_path))
    starting = 200, b'{"name":"slow","connector":{"state":"UNASSIGNED","worker_id":"w"},"tasks":[],"type":"source"}'
    config = 200, json.dumps(json.loads(file.read_text())).encode()
    with proxy(connect, (200, b"[]"), config, *[starting] * 20) as (url, _):
        done = headwater("connect", "apply", file, "--url", url, "--wait", "500ms")
    assert done.code == 1
    assert (
        "error: slow: after 0.5 s it is UNASSIGNED, no tasks\n  → look again: headwater connect status slow" in done.err
    )


def test_a_worker_that_cannot_be_reached_exits_3(headwater: Headwater, tmp_path: Path):
    file = write(tmp_path, {"name": "x", "connector.class": "X"})
    for command in (["apply", file], ["status"], ["plugins"], ["stop", "x"], ["delete", "x", "--yes"]):
        done = headwater("connect", *command, "--url", "http://127.0.0.1:1", "--json")
        assert done.code == 3
        assert done.json["error"]["message"].startswith("no Kafka Connect worker answers at http://127.0.0.1:1: ")


def test_plugins_are_listed_with_their_versions(hw: Headwater):
    assert ["io.debezium.connector.postgresql.PostgresConnector", "source", "3.6.3.Final"] in [
        line.split() for line in hw("plugins").out.splitlines()
    ]
    assert {"class", "type", "version"} == set(hw("plugins", "--json").json["plugins"][0])


def test_the_worker_is_found_where_it_was_named_and_people_are_told(
    headwater: Headwater, connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    usual = headwater("connect", "plugins")
    assert usual.err.startswith("Kafka Connect at http://localhost:8083 (the default)\n")
    (tmp_path / "headwater.yaml").write_text(f"connect: {{url: '{connect}'}}\n")
    output = headwater("connect", "plugins")
    assert (output.code, output.err) == (0, f"Kafka Connect at {connect} (headwater.yaml)\n")
    monkeypatch.setenv("HEADWATER_CONNECT_URL", "http://u:geheim@127.0.0.1:1")
    named = headwater("connect", "plugins")
    assert (named.code, "Kafka Connect at http://u:****@127.0.0.1:1 (HEADWATER_CONNECT_URL)" in named.err) == (3, True)
    assert "geheim" not in named.err + named.out
    assert headwater("connect", "plugins", "--url", connect).err == ""
    monkeypatch.delenv("HEADWATER_CONNECT_URL")
    (tmp_path / "headwater.yaml").write_text("connect: {url: 'localhost:8083'}\n")
    wrong = headwater("connect", "plugins")
    assert (wrong.code, ": write an address such as http://connect:8083" in wrong.err) == (2, True)


def test_a_worker_without_connectors_says_how_to_make_one(headwater: Headwater):
    with proxy("http://127.0.0.1:1", (200, b"[]")) as (url, _):
        assert headwater("connect", "status", "--url", url).out == "no connectors\n  → headwater connect apply FILE\n"
    with proxy("http://127.0.0.1:1", (404, b'{"message":"not found"}'), (200, b"[]")) as (url, _):
        assert (
            "it has none; headwater connect apply FILE creates one"
            in headwater("connect", "stop", "x", "--url", url).err
        )


@pytest.fixture
def capture(
    hw: Headwater, headwater: Headwater, name: str, tmp_path: Path, database: str, monkeypatch
) -> Iterator[Path]:
    """The template for PostgreSQL, as printed, over a table with a type that Debezium does not know."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TYPE pair AS (a int, b int)")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, price numeric(8,2), span interval, odd pair)")
        connection.execute("CREATE TABLE debezium_signal (id text PRIMARY KEY, type text NOT NULL, data text)")
        connection.execute("INSERT INTO orders VALUES (1, 12.50, '1 mon 2 days', '(1,2)')")
    at = psycopg.conninfo.conninfo_to_dict(database)
    monkeypatch.setenv("POSTGRESQL_USER", at["user"])
    monkeypatch.setenv("POSTGRESQL_PASSWORD", "streng-geheim")
    flags = ["--name", name, "--database", at["dbname"], "--host", at["host"], "--port", at["port"]]
    output = headwater("connect", "template", "postgres", *flags, "--table", "public.orders")
    assert output.code == 0, output.err
    file = tmp_path / "debezium.json"
    file.write_text(output.out)
    yield file
    if hw("delete", name, "--yes").code == 0:
        drop_slot(database, name)


def test_the_postgres_template_brings_every_change_to_kafka(
    hw: Headwater, name: str, capture: Path, database: str, kafka: KafkaForTests
):
    missing = hw("apply", capture)
    assert missing.code == 1, "the publication is not there, and Debezium may not make one"
    assert (
        "task 0 failed: org.apache.kafka.connect.errors.ConnectException: Publication autocreation is disabled"
        in missing.err
    )
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE orders, debezium_signal")
    done = hw("restart", name)
    assert (done.code, done.out) == (0, f"{name}: RUNNING, 1 task RUNNING\n"), done.err
    assert hw("apply", capture).out == f"{name}: unchanged; RUNNING, 1 task RUNNING\n"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE orders SET price = 13")
        connection.execute("DELETE FROM orders")
        connection.execute("TRUNCATE orders")
    events = values_of(kafka.brokers, f"{name}.public.orders", 5)
    assert [event and event["payload"]["op"] for event in events] == ["r", "u", "d", None, "t"]
    after = events[0]["payload"]["after"]
    assert (after["price"], after["span"]) == ("BOI=", "P0Y1M2DT0H0M0S")
    assert "odd" in after, "a column of a type that Debezium does not know is there all the same"
    status = hw("status", name)
    assert f'{name} is at {{"server": "{name}"}}: ' in status.out
    everything = [hw("status", name, "--json", "--trace"), status, missing, done]
    assert not [ran for ran in everything if "streng-geheim" in ran.out + ran.err]


def test_a_changed_password_is_shown_by_the_name_of_its_variable(
    hw: Headwater, name: str, capture: Path, database: str, monkeypatch
):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE orders, debezium_signal")
    assert hw("apply", capture).code == 0
    monkeypatch.setenv("POSTGRESQL_PASSWORD", "noch-geheimer")
    done = hw("apply", capture)
    assert done.out.splitlines() == [
        f"{name}: changed; RUNNING, 1 task RUNNING",
        "  database.password: **** → ${POSTGRESQL_PASSWORD}",
    ]
    refused = hw("delete", name)
    assert f"the slot '{name}' stays too" in refused.err
    assert f"SELECT pg_drop_replication_slot('{name}')" in refused.err


def test_a_database_that_is_not_there_is_told_before_anything_is_sent(
    hw: Headwater, name: str, capture: Path, connect: str
):
    config = json.loads(capture.read_text())
    config["config"]["database.port"] = "1"
    done = hw("apply", write(capture.parent, config, "wrong.json"))
    assert done.code == 2
    assert f"{capture.parent}/wrong.json:6:5  database.hostname  " in done.err
    assert "streng-geheim" not in done.err
    assert name not in ConnectClient(connect).names()


def values_of(brokers: str, topic: str, count: int, decode: Callable[[bytes], object] = json.loads) -> list:
    settings = {"bootstrap.servers": brokers, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**settings, "topic.metadata.refresh.interval.ms": 200})
    consumer.subscribe([topic])
    replies: list = []

    def arrived() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            replies.append(message.value() and decode(message.value()))
        return len(replies) >= count

    wait_until(arrived, 90)
    consumer.close()
    return replies
