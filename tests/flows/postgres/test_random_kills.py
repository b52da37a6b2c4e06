"""pgbench and a nastier load with DDL, while Headwater and PostgreSQL are killed: all tables equal the source, at every label."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from headwater.services.stack.postgres import NO_FSYNC, Postgres, client_program
from headwater.services.stack.service import Service, running
from headwater.sources.postgres.guard.wal_messages import PREFIX, label_note
from tests.flows.postgres.captured_tables import CapturedTables, Content
from tests.flows.postgres.load import TABLES, DdlLoad, Load

pytestmark = pytest.mark.spark
TPC_B = {
    "pgbench_accounts": ("aid",),
    "pgbench_branches": ("bid",),
    "pgbench_tellers": ("tid",),
    "pgbench_history": ("hid",),
}
# DDL that the log does not tell leaves a table without a tag until it has been copied again.
SHAPED = ("shifting", "parts")


class Storm:
    """Loads that go on while servers and processes end."""

    def __init__(self, tables: CapturedTables, server: Service, seed: int, rate: int) -> None:
        self._tables, self._server, self._rate = tables, server, rate
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self.cuts: dict[str, dict[str, Content]] = {}
        self.interrupted = 0

    def rage(self, kills: int) -> None:
        """That many kills, of Headwater and of PostgreSQL in turn, with a label before each."""
        chance, tables = self._chance, self._tables
        child = tables.start("cycles")
        with self._loads():
            for number in range(kills):
                time.sleep(chance.uniform(2, 6))  # not a wait: so long the loads run
                self._cut(f"cut-{number}")
                time.sleep(chance.uniform(0, 2))  # as above
                if number % 2:
                    self._server.kill()
                    self._server.start()
                    self._end_prepared()
                else:
                    child.kill()
                    child = tables.start("cycles")
        child.kill()

    def _cut(self, name: str) -> None:
        """A label, and what all tables hold at it: they are locked, so that nothing commits in between."""
        while name not in self.cuts:
            with suppress(psycopg.errors.DeadlockDetected):
                with psycopg.connect(self._tables.database) as connection:
                    connection.execute("SET LOCAL deadlock_timeout = '100ms'")  # this one gives way, not the loads
                    connection.execute(f"LOCK TABLE {', '.join(self._tables.keys)} IN SHARE MODE")
                    content = dict(self._tables.seen_by(connection))
                    connection.execute("SELECT pg_logical_emit_message(true, %s, %s)", [PREFIX, label_note(name)])
                self.cuts[name] = content

    @contextmanager
    def _loads(self) -> Iterator[None]:
        loads = [threading.Thread(target=work) for work in (self._nasty, self._shape, self._bench)]
        for load in loads:
            load.start()
        try:
            yield
        finally:
            self._over.set()
            for load in loads:
                load.join()

    def _nasty(self) -> None:
        self._again_and_again(lambda seed: Load(self._tables.database, seed).work(5), 0.05)

    def _shape(self) -> None:
        self._again_and_again(lambda seed: DdlLoad(self._tables.database, seed).work(), 0.7)

    def _bench(self) -> None:
        """TPC-B from four clients; it ends with the server's sessions, and begins anew."""
        command = [client_program("pgbench"), "-n", "-c", "4", "-R", str(self._rate), "-T", "2", "--max-tries", "100"]

        def work(_: int) -> None:
            ran = subprocess.run([*command, self._tables.database], capture_output=True, text=True, check=False)
            self.interrupted += ran.returncode != 0

        self._again_and_again(work, 0)

    def _again_and_again(self, work, pause: float) -> None:
        chance = random.Random(self._chance.randrange(10**6))
        while not self._over.wait(pause):
            try:
                work(chance.randrange(10**6))
            except psycopg.OperationalError:
                self.interrupted += 1  # the server was killed, or a deadlock was ended
                self._over.wait(0.2)

    def _end_prepared(self) -> None:
        """What was prepared when the server ended still holds its locks."""
        with psycopg.connect(self._tables.database, autocommit=True) as connection:
            for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
                connection.execute(f"{self._chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{gid}'")

    def check(self) -> None:
        tables = self._tables
        tables.land_all()
        tables.check()
        for name, cut in self.cuts.items():
            for table, content in cut.items():
                if table not in SHAPED:
                    tables.check_table(table, content, name)
                elif self._tagged(table, name):
                    tables.check_table(table, self._without_unseen(table, name, content), name)

    def _without_unseen(self, table: str, label: str, content: Content) -> Content:
        """Without columns that were added before the label and dropped again before any row had a value in them.

        Neither the WAL nor a later look at the catalog shows such a column. It holds nothing but NULL.
        """
        known = self._tables.spark.sql(
            f"SELECT * FROM {self._tables.namespace}.{table} VERSION AS OF '{label}'"
        ).columns
        seen = [number for number, name in enumerate(content.columns) if name in known]
        unseen = [number for number, name in enumerate(content.columns) if name not in known]
        assert all(row[number] is None for row in content.rows for number in unseen), (
            f"{table} {label}: {content.columns}"
        )
        rows: Counter[tuple[object, ...]] = Counter()
        for row, times in content.rows.items():
            rows[tuple(row[number] for number in seen)] += times
        return Content([content.columns[number] for number in seen], rows)

    def _tagged(self, table: str, label: str) -> bool:
        refs = self._tables.spark.sql(f"SELECT name FROM {self._tables.namespace}.{table}.refs")
        return label in {row.name for row in refs.collect()}


def storm(kills: int, seed: int, rate: int, folder: Path, spark, namespace: str) -> Storm:
    with running(Postgres(NO_FSYNC), folder / "server") as server:
        database = server.address["url"]
        subprocess.run([client_program("pgbench"), "-i", "-q", "-s", "1", database], capture_output=True, check=True)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("ALTER TABLE pgbench_history ADD hid bigserial PRIMARY KEY")
            connection.execute(TABLES)
        where = folder / "project"
        where.mkdir()
        tables = CapturedTables(database, where, spark, namespace, more={**TPC_B, "shifting": ("id",)})
        tables.land_all()  # labels stand in the log, which begins with the slot
        result = Storm(tables, server, seed, rate)
        try:
            result.rage(kills)
        finally:
            tables.close()
        result.check()
        return result


@pytest.mark.timeout(400)
def test_killed_at_random_all_tables_equal_the_source_at_every_label(tmp_path: Path, spark, namespace: str):
    result = storm(2, 5, 100, tmp_path, spark, namespace)
    assert len(result.cuts) == 2
    assert result.interrupted


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_twenty_kills_under_pgbench(tmp_path: Path, spark, namespace: str, seed: int):
    result = storm(20, seed, 300, tmp_path, spark, namespace)
    assert len(result.cuts) == 20
