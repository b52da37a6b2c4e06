"""A label written while a source is captured: all tables can be read as they were together at that transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.guard.slot import drop_slot
from tests.support.world import World

pytestmark = pytest.mark.spark


@pytest.fixture
def world(database: str, tmp_path: Path, namespace: str, spark) -> Iterator[World]:
    name = database.rpartition("/")[2]
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int)")
        admin.execute("INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1)")
    yield World(
        tmp_path,
        {"postgres": {"url": database, "tables": ["public.*"], "slot": name}},
        [{"iceberg": {"table": f"{namespace}.{{table}}", "mode": "merge"}}],
        spark=spark,
    )
    session = PostgresSession(Secret(database))
    drop_slot(session, name)
    session.close()


def test_every_table_is_tagged_at_the_very_transaction(database: str, namespace: str, world: World):
    with world.pipeline() as pipeline, psycopg.connect(database, autocommit=True) as client:

        def total(table: str, version: str = "") -> int:
            ((number,),) = world.select(f"SELECT sum(n) FROM {namespace}.{table} {version}")
            return number

        with pytest.raises(InputError, match="has not created its slot yet"):
            pipeline.label("month-end")
        world.catch_up()
        client.execute("UPDATE a SET n = 10")
        written = pipeline.label("month-end")
        client.execute("UPDATE a SET n = 100")
        client.execute("UPDATE b SET n = 100")
        assert not written.landed()
        world.catch_up()
        assert written.landed()
        assert (total("a"), total("b")) == (100, 100)
        assert (total("a", "VERSION AS OF 'month-end'"), total("b", "VERSION AS OF 'month-end'")) == (10, 1)
        with pytest.raises(InputError, match="label month-end exists already"):
            pipeline.label("month-end")
