"""The local stack from the command line: it starts, answers, comes back, and ends nothing but its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from headwater.services.stack.s3 import client
from headwater.services.stack.service import ChildProcess
from headwater.services.stack.stack import Stack
from tests.support.command_line import Headwater

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(900),
]  # on a machine with Go, the first `stack up s3` ever builds the server


@pytest.fixture
def folder(tmp_path):
    """Where a test's own stack lives; nothing of it outlives the test."""
    yield tmp_path / "stack"
    stack = Stack(tmp_path / "stack")
    stack.down()
    stack.remove()


def records(folder: Path) -> dict:
    return json.loads((folder / "stack.json").read_text())


def test_servers_outlive_the_command_and_come_back_with_their_data(process: Headwater, folder: Path):
    done = process("stack", "up", "postgres", "s3", "--json", "--dir", folder)
    assert done.code == 0, done.err
    assert "postgres (" in done.err
    assert "answers after" in done.err
    assert set(done.json) == {"postgres", "s3"}
    assert set(done.json["s3"]) == {"endpoint", "region", "access_key", "secret_key"}
    url = done.json["postgres"]["url"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    client(done.json["s3"]).create_dir("bucket")

    assert process("stack", "down", "--json", "--dir", folder).json == {"ended": ["s3", "postgres"]}
    assert process("stack", "status", "--dir", folder).code == 3
    again = process("stack", "up", "postgres", "--json", "--dir", folder)
    assert again.json == {"postgres": {"url": url}}
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]


def test_a_running_server_is_left_alone_and_a_killed_one_is_told(headwater: Headwater, folder: Path):
    headwater("stack", "up", "postgres", "s3", "--dir", folder)
    before = records(folder)
    again = headwater("stack", "up", "postgres", "--dir", folder)
    assert "postgres already runs" in again.err
    assert records(folder) == before
    assert headwater("stack", "status", "--dir", folder).code == 0

    os.kill(before["s3"]["pid"], signal.SIGKILL)
    shown = headwater("stack", "status", "--json", "--dir", folder)
    assert shown.code == 3
    assert {server["server"]: server["state"] for server in shown.json["servers"]} == {
        "postgres": "running",
        "s3": "down",
    }
    assert headwater("stack", "status", "postgres", "--dir", folder).code == 0
    assert headwater("stack", "up", "s3", "--dir", folder).code == 0
    assert records(folder)["s3"]["address"] == before["s3"]["address"]
    assert records(folder)["s3"]["pid"] != before["s3"]["pid"]


def test_a_frozen_server_is_told_apart_from_one_that_is_down(headwater: Headwater, folder: Path):
    headwater("stack", "up", "s3", "--dir", folder)
    pid = records(folder)["s3"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        (server,) = headwater("stack", "status", "--json", "--dir", folder).json["servers"]
        assert server["state"] == "not answering"
        refused = headwater("stack", "up", "s3", "--dir", folder)
        assert refused.code == 3
        assert f"process {pid}" in refused.err
    finally:
        os.kill(pid, signal.SIGCONT)


def test_down_ends_no_process_that_merely_has_the_same_id(headwater: Headwater, folder: Path):
    headwater("stack", "up", "s3", "--dir", folder)
    known = records(folder)
    server = ChildProcess(known["s3"]["pid"], known["s3"]["started"])
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            known["s3"]["pid"] = stranger.pid
            (folder / "stack.json").write_text(json.dumps(known))
            assert headwater("stack", "status", "--dir", folder).code == 3
            assert headwater("stack", "down", "--json", "--dir", folder).json == {"ended": []}
            assert stranger.poll() is None
            assert server.alive()
        finally:
            stranger.kill()
            server.kill()


def test_down_can_delete_what_the_servers_kept_and_nothing_else(headwater: Headwater, folder: Path):
    headwater("stack", "up", "postgres", "--dir", folder)
    (folder / "mine.txt").write_text("not the stack's")
    data = (folder / "postgres" / "elsewhere").resolve() if os.getuid() == 0 else folder / "postgres"
    assert data.exists()
    refused = headwater("stack", "down", "--remove", "--dir", folder)
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert headwater("stack", "status", "--dir", folder).code == 0
    assert headwater("stack", "down", "--remove", "--yes", "--dir", folder).code == 0
    assert not data.exists()
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "mine.txt"]
    nothing = headwater("stack", "status", "--dir", folder)
    assert (nothing.code, "headwater stack up" in nothing.out) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["up", "kafak"], "unknown server 'kafak'"),
        (["down", "postgres", "oracle"], "unknown server 'oracle'"),
        (["status", "minio"], "servers: postgres, s3, kafka, connect"),
        (["restart"], "up"),
        ([], "up"),
        (["up", "--remove"], "headwater stack down --remove"),
    ],
)
def test_bad_input_exits_2_and_starts_nothing(headwater: Headwater, folder: Path, arguments, said):
    done = headwater("stack", *arguments, "--dir", folder)
    assert done.code == 2
    assert said in done.err
    assert not (folder / "stack.json").exists()


def test_a_machine_without_java_or_network_is_told_what_to_do(headwater: Headwater, folder: Path, monkeypatch):
    monkeypatch.setenv("HEADWATER_JARS", str(folder / "jars"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    offline = headwater("stack", "up", "kafka", "--dir", folder)
    assert offline.code == 3
    assert "could not fetch kafka_2.13-" in offline.err
    assert "headwater jars fetch --set broker" in offline.err
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert (
        "Java 17 or 21 is required; none found in JAVA_HOME" in headwater("stack", "up", "kafka", "--dir", folder).err
    )


def test_a_damaged_record_is_named(headwater: Headwater, folder: Path):
    folder.mkdir()
    (folder / "stack.json").write_text("{")
    done = headwater("stack", "down", "--dir", folder)
    assert done.code == 3
    assert f"{folder / 'stack.json'} cannot be read" in done.err
    (folder / "stack.json").unlink()
