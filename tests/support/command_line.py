"""The command line as users meet it: in this process where that is enough, in its own where streams matter."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Headwater = Callable[..., Ran]


@pytest.fixture
def headwater(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Headwater:
    """Runs a command in this process, in the test's own folder."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADWATER_") and name != "HEADWATER_JARS"]:
        monkeypatch.delenv(name)

    def run(*arguments: object) -> Ran:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="headwater")
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def process(tmp_path: Path) -> Headwater:
    """Runs a command in a process of its own, with pipes for streams."""

    def run(*arguments: object, **environment: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "headwater.cli.main", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@dataclass(frozen=True)
class Shop:
    """A SQLite database and a pipeline over it that prints what comes through."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "orders.yaml"

    def sell(self, *items: str) -> None:
        with sqlite3.connect(self.folder / "shop.db") as database:
            database.executemany("INSERT INTO orders (item) VALUES (?)", [(item,) for item in items])


ORDERS = """\
pipeline: orders
lease: 2s
source:
  sql: {url: "sqlite:///shop.db", table: orders, cursor: id}
sinks:
  - console: {format: json}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Two orders that nobody has read yet."""
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    (tmp_path / "orders.yaml").write_text(ORDERS)
    shop = Shop(tmp_path)
    shop.sell("apple", "pear")
    return shop
