"""A plain-Python pipeline over the `postgres` source: takes windows, applies changes by position, moves the mark."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections import defaultdict
from contextlib import closing, contextmanager

import psycopg

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.position.marks import LsnMark, mark_from_json
from headwater.model.position.window import Window
from headwater.model.progress import Lease
from headwater.model.protocols.source import Claim
from headwater.sources.postgres.source import CATALOG_SECONDS, PostgresSource

LEASE = Lease("p", "me", 1, dt.datetime.now(dt.UTC), 60)
BESIDE = ("_op", "_position", "_source_time", "_transaction", "_missing", "_old_key", "_row")


class Follower:
    """Holds what the tables of a lake would: per stream, the last change of every key."""

    def __init__(self, url: str, catalog_seconds: float = CATALOG_SECONDS, **settings) -> None:
        self.url, self.catalog_seconds = url, catalog_seconds
        self.settings = PostgresSourceSettings.model_validate(
            {"url": url, "slot": f"t_{uuid.uuid4().hex[:16]}", **settings}
        )
        self.source = PostgresSource(self.settings, 2, self.catalog_seconds)
        self.mark: LsnMark | None = None
        self.rows: dict[str, dict[tuple, tuple[int, dict | None]]] = defaultdict(dict)
        self.truncated: dict[str, int] = defaultdict(lambda: -1)
        self.events: list[tuple[str, dict]] = []
        self.rejects = []
        self.windows: list[Window] = []
        self.warnings: list[str] = []

    def restart(self) -> None:
        """As another process: only the mark is left."""
        self.source.close()
        self.source = PostgresSource(self.settings, 2, self.catalog_seconds)
        self.mark = mark_from_json(json.loads(json.dumps(self.mark.to_json()))) if self.mark else None

    def cycle(self, *, acknowledge: bool = True) -> bool:
        """One window; False: nothing new."""
        plan = self.source.plan(self.mark, claim=Claim(LEASE, "run"))
        self.warnings += plan.warnings
        if plan.window is None:
            return False
        window = Window.from_json(json.loads(json.dumps(plan.window.to_json())))
        assert window == plan.window
        self.land(window)
        if acknowledge:
            self.source.acknowledge(self.mark)
        return True

    def land(self, window: Window) -> None:
        with self.source.read(window) as streams:
            for rows in streams:
                for split in rows.splits:
                    for batch in split.read(self.rejects.append):
                        assert batch.schema == rows.schema
                        for row in batch.to_pylist():
                            self._apply(rows.stream, rows.key, row)
        self.windows.append(window)
        self.mark = window.end

    def catch_up(self) -> None:
        for _ in range(50):
            if not self.cycle():
                return
        raise AssertionError("the source never ends")

    def _apply(self, stream: str, key: tuple[str, ...], row: dict) -> None:
        self.events.append((stream, row))
        position = int(row["_position"])
        if row["_op"] == "t":
            self.truncated[stream] = max(position, self.truncated[stream])
            return
        name = tuple(row[column] for column in key) if key else (position, row["_row"])
        assert None not in name, row
        known = self.rows[stream]
        if name in known and known[name][0] > position:
            return
        values = {column: value for column, value in row.items() if column not in BESIDE}
        if row["_missing"]:
            old = known.get(tuple(json.loads(row["_old_key"])) if row["_old_key"] else name)
            assert old, row
            base = old[1] if old[1] is not None else self._before_delete[stream][tuple(json.loads(row["_old_key"]))]
            values |= {column: base[column] for column in row["_missing"]}
        if row["_op"] == "d" and name in known and known[name][1] is not None:
            self._before_delete[stream][name] = known[name][1]
        known[name] = (position, None if row["_op"] == "d" else values)

    @property
    def _before_delete(self) -> dict:
        if not hasattr(self, "_former"):
            self._former = defaultdict(dict)
        return self._former

    def table(self, stream: str) -> list[dict]:
        """What stands, by key."""
        rows = self.rows[stream]
        standing = {name: row for name, (at, row) in rows.items() if row is not None and at > self.truncated[stream]}
        return [standing[name] for name in sorted(standing, key=str)]

    def close(self) -> None:
        self.source.close()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                [self.settings.slot],
            )


@contextmanager
def following(url: str, **settings):
    with closing(Follower(url, **settings)) as follower:
        yield follower


def source_table(url: str, table: str, key: str) -> list[dict]:
    """What PostgreSQL holds, by key, as Arrow's values in Python."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return sorted(rows, key=lambda row: str(tuple(row[name] for name in key.split(","))))
