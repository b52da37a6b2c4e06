"""A label written while a source is captured: all tables can be read as they were together at that transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.guard.slot import drop_slot

pytestmark = pytest.mark.spark


@pytest.fixture
def slot(database: str, tmp_path: Path, namespace: str) -> Iterator[str]:
    name = database.rpartition("/")[2]
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int)")
        admin.execute("INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1)")
    (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
    (tmp_path / "shop.yaml").write_text(f"""
pipeline: shop
source: {{postgres: {{url: "{database}", tables: ["public.*"], slot: {name}}}}}
sinks:
  - iceberg: {{table: "{namespace}.{{table}}", mode: merge}}
""")
    yield name
    session = PostgresSession(Secret(database))
    drop_slot(session, name)
    session.close()


def test_every_table_is_tagged_at_the_very_transaction(database: str, tmp_path: Path, namespace: str, spark, slot: str):
    with (
        Project(load_project(tmp_path), tmp_path, spark=spark) as project,
        psycopg.connect(database, autocommit=True) as client,
    ):
        pipeline = project.pipelines([tmp_path / "shop.yaml"])[0]

        def caught_up() -> None:
            while True:
                result = pipeline.run_once()
                assert result.outcome != "failed", result.error
                if result.outcome == "nothing new":
                    return

        def total(table: str, version: str = "") -> int:
            return spark.sql(f"SELECT sum(n) FROM {namespace}.{table} {version}").first()[0]

        with pytest.raises(InputError, match="has not created its slot yet"):
            pipeline.label("month-end")
        caught_up()
        client.execute("UPDATE a SET n = 10")
        written = pipeline.label("month-end")
        client.execute("UPDATE a SET n = 100")
        client.execute("UPDATE b SET n = 100")
        assert not written.landed()
        caught_up()
        assert written.landed()
        assert (total("a"), total("b")) == (100, 100)
        assert (total("a", "VERSION AS OF 'month-end'"), total("b", "VERSION AS OF 'month-end'")) == (10, 1)
        with pytest.raises(InputError, match="label month-end exists already"):
            pipeline.label("month-end")
