"""A log that is no longer there: noticed before anything is written, and a new copy is the way out, in all three modes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.services.stack.postgres import NO_FSYNC, Postgres
from headwater.services.stack.service import Service, running
from tests.flows.postgres.captured_tables import CapturedTables
from tests.flows.postgres.load import Load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    """A server of its own: it is stopped, and what it keeps is bounded."""
    with running(Postgres({**NO_FSYNC, "max_slot_wal_keep_size": "32MB"}), tmp_path / "server") as service:
        yield service
    service.remove()


@pytest.fixture
def tables(server: Service, tmp_path: Path, namespace: str, spark) -> CapturedTables:
    (tmp_path / "project").mkdir()
    return CapturedTables(server.address["url"], tmp_path / "project", spark, namespace)


def lost(tables: CapturedTables, server: Service) -> None:
    with psycopg.connect(tables.database, autocommit=True) as connection:
        for _ in range(6):
            connection.execute("CREATE TABLE filling AS SELECT repeat('x', 100) FROM generate_series(1, 100000)")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("DROP TABLE filling")
        connection.execute("CHECKPOINT")


def recreated(tables: CapturedTables, server: Service) -> None:
    tables.drop_slot()
    Load(tables.database, 5).work(5)
    with psycopg.connect(tables.database, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [tables.slot])


def restored(tables: CapturedTables, server: Service) -> None:
    """To what it was before the last transactions, which had landed."""
    data = data_folder(tables)
    server.stop()
    subprocess.run(["rm", "-rf", data], check=True)
    subprocess.run(["mv", f"{data}.copy", data], check=True)
    server.start()


def data_folder(tables: CapturedTables) -> str:
    with psycopg.connect(tables.database) as connection:
        return str(connection.execute("SHOW data_directory").fetchone()[0])


def back_up(tables: CapturedTables, server: Service) -> None:
    data = data_folder(tables)
    server.stop()
    subprocess.run(["cp", "-a", data, f"{data}.copy"], check=True)
    server.start()


def snapshots(tables: CapturedTables) -> list[tuple]:
    names = [f"{tables.namespace}.{table}{kind}" for table in tables.keys for kind in ("", "_log", "_history")]
    return [tables.select(f"SELECT count(*) FROM {name}.snapshots")[0] for name in names]


@pytest.mark.parametrize(
    ("accident", "message"),
    [(lost, "is lost"), (recreated, "dropped and created again"), (restored, "restored from an older copy")],
    ids=["lost", "made-again", "restored"],
)
def test_it_is_noticed_before_anything_is_written_and_a_new_copy_is_the_way_out(
    tables: CapturedTables, server: Service, accident: Callable[[CapturedTables, Service], None], message: str
):
    tables.land_all()
    back_up(tables, server)
    Load(tables.database, 1).work(40)
    tables.land_all()
    tables.check()
    accident(tables, server)
    Load(tables.database, 2).work(10)
    before = snapshots(tables)
    for _ in range(2):
        result = tables.run()
        assert result.error
        assert message in result.error.message
        assert "--to snapshot" in result.error.hint
    assert snapshots(tables) == before
    tables.rewind("snapshot")
    tables.land_all()
    tables.check()
    Load(tables.database, 3).work(20)
    tables.land_all()
    tables.check()
