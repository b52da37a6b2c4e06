"""A log that is no longer there: noticed before anything is written, and a new copy is the way out, in all three modes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.services.stack.postgres import NO_FSYNC, Postgres
from headwater.services.stack.service import Service, running
from tests.flows.postgres.captured_yard import Load, Yard

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    """A server of its own: it is stopped, and what it keeps is bounded."""
    with running(Postgres({**NO_FSYNC, "max_slot_wal_keep_size": "32MB"}), tmp_path / "server") as service:
        yield service
    service.remove()


@pytest.fixture
def yard(server: Service, tmp_path: Path, namespace: str) -> Yard:
    (tmp_path / "project").mkdir()
    return Yard.build(server.address["url"], tmp_path / "project", namespace)


def lost(yard: Yard, server: Service) -> None:
    with psycopg.connect(yard.database, autocommit=True) as connection:
        for _ in range(6):
            connection.execute("CREATE TABLE filling AS SELECT repeat('x', 100) FROM generate_series(1, 100000)")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("DROP TABLE filling")
        connection.execute("CHECKPOINT")


def made_again(yard: Yard, server: Service) -> None:
    yard.drop_slot()
    Load(yard.database, 5).work(5)
    with psycopg.connect(yard.database, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [yard.slot])


def restored(yard: Yard, server: Service) -> None:
    """To what it was before the last transactions, which had landed."""
    data = data_folder(yard)
    server.stop()
    subprocess.run(["rm", "-rf", data], check=True)
    subprocess.run(["mv", f"{data}.copy", data], check=True)
    server.start()


def data_folder(yard: Yard) -> str:
    with psycopg.connect(yard.database) as connection:
        return str(connection.execute("SHOW data_directory").fetchone()[0])


def kept(yard: Yard, server: Service) -> None:
    data = data_folder(yard)
    server.stop()
    subprocess.run(["cp", "-a", data, f"{data}.copy"], check=True)
    server.start()


def snapshots(yard: Yard, spark) -> list[int]:
    names = [f"{yard.namespace}.{table}{kind}" for table in yard.keys for kind in ("", "_log", "_history")]
    return [spark.sql(f"SELECT count(*) FROM {name}.snapshots").first()[0] for name in names]


@pytest.mark.parametrize(
    ("accident", "told"),
    [(lost, "is lost"), (made_again, "dropped and created again"), (restored, "restored from an older copy")],
    ids=["lost", "made-again", "restored"],
)
def test_it_is_noticed_before_anything_is_written_and_a_new_copy_is_the_way_out(
    yard: Yard, server: Service, spark, accident: Callable[[Yard, Service], None], told: str
):
    yard.catch_up(spark)
    kept(yard, server)
    Load(yard.database, 1).work(40)
    yard.catch_up(spark)
    yard.check(spark)
    accident(yard, server)
    Load(yard.database, 2).work(10)
    before = snapshots(yard, spark)
    for _ in range(2):
        result = yard.run(spark)
        assert result.error
        assert told in result.error.message
        assert "--to snapshot" in result.error.hint
    assert snapshots(yard, spark) == before
    with Project(load_project(yard.folder), yard.folder, spark=spark) as project:
        project.pipelines([yard.folder / "yard.yaml"])[0].rewind("snapshot", why="the log is gone")
    yard.catch_up(spark)
    yard.check(spark)
    Load(yard.database, 3).work(20)
    yard.catch_up(spark)
    yard.check(spark)
