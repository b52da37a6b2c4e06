"""Where the contract's data lives, for each kind of store."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg

from headwater.model.protocols.store import Store
from headwater.model.secret import Secret
from headwater.progress.file import FileProgress, file_stem
from headwater.progress.memory import MemoryProgress
from headwater.progress.multilevel import MultilevelProgress
from headwater.progress.postgres import PostgresProgress
from headwater.progress.record_store import wall_clock
from headwater.progress.sqlite import SqliteProgress
from headwater.testing.progress_contract import StoreTarget


@dataclass(frozen=True)
class SettableClock:
    """The wall clock, plus what a file says: tests set it forward for every process at once."""

    path: Path

    def __call__(self) -> dt.datetime:
        ahead = float(self.path.read_text()) if self.path.exists() else 0.0
        return wall_clock() + dt.timedelta(seconds=ahead)

    def pass_time(self, seconds: float) -> None:
        ahead = float(self.path.read_text()) if self.path.exists() else 0.0
        self.path.write_text(str(ahead + seconds))


class MemoryTarget:
    shared = False

    def __init__(self, folder: Path) -> None:
        self._clock = SettableClock(folder / "clock")
        self.pass_time = self._clock.pass_time
        store = MemoryProgress(self._clock)
        self.open = lambda: store

    def damage(self, pipeline: str) -> None:
        raise NotImplementedError


class FileTarget:
    shared = True

    def __init__(self, folder: Path) -> None:
        self._clock = SettableClock(folder / "clock")
        self.pass_time = self._clock.pass_time
        self.folder = folder / "progress"
        self.open = partial(FileProgress, self.folder, self._clock)

    def damage(self, pipeline: str) -> None:
        path = self.folder / f"{file_stem(pipeline)}.json"
        content = json.loads(path.read_text())
        content["body"]["progress"]["mark"]["value"] += 1
        path.write_text(json.dumps(content))


class SqliteTarget:
    shared = True

    def __init__(self, folder: Path) -> None:
        self._clock = SettableClock(folder / "clock")
        self.pass_time = self._clock.pass_time
        self.path = folder / "state" / "progress.db"
        self.open = partial(SqliteProgress, self.path, self._clock)

    def damage(self, pipeline: str) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE headwater_progress SET mark = '{\"kind\": ' WHERE pipeline = ?", [pipeline])
        connection.close()


class PostgresTarget:
    shared = True

    def __init__(self, url: str) -> None:
        self.url = url
        self.open = partial(PostgresProgress, Secret(url))

    def pass_time(self, seconds: float) -> None:
        with psycopg.connect(self.url) as connection:
            shift = "UPDATE headwater_progress SET lease_expires_at = lease_expires_at - make_interval(secs => %s)"
            connection.execute(shift, [seconds])

    def damage(self, pipeline: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(
                'UPDATE headwater_progress SET mark = \'{"kind": "?", "version": 1}\' WHERE pipeline = %s', [pipeline]
            )


class LevelsTarget:
    """A level in front, of its own for each store that is opened or shared by all, and the place that decides."""

    shared = True

    def __init__(self, front, last: StoreTarget) -> None:
        self.open = partial(open_levels, front, last.open)
        self.pass_time, self.damage = last.pass_time, last.damage


def open_levels(front, last) -> Store:
    return MultilevelProgress([front()], last())
