"""Runs what a page of the documentation shows, block by block, and compares what it prints.

```yaml file=content.yaml     writes the file (so do python, toml and text blocks with file=)
```sql                        runs on the database of $PG_URL
```sql sqlite=shop.db         runs on a SQLite file
```console                    runs each `$ command`; the lines below it are its stdout, `…` stands for anything
<!-- sql … -->                the same blocks, hidden from readers
"""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg

_BLOCK = re.compile(
    r"^(?:```|<!-- )(?P<kind>\w+)(?P<info>[^\n]*)\n(?P<body>.*?)^(?:```|-->)\s*$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    kind: str
    options: dict[str, str]
    body: str


def blocks(page: Path) -> Iterator[Block]:
    for match in _BLOCK.finditer(page.read_text()):
        options = dict(word.split("=", 1) for word in match["info"].split() if "=" in word)
        yield Block(match["kind"], options, match["body"])


def walk(page: Path, folder: Path, more: Mapping[str, str], programs: Sequence[Path] = ()) -> int:
    """Do what the page says, in `folder`; return how many commands were run.

    The environment has `more`, with PG_URL, and looks for programs in the folders `programs` first.
    """
    count = 0
    path = os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_FAULT")}
    environment = {**own, **more, "PATH": path}
    for block in blocks(page):
        if "file" in block.options:
            target = folder / block.options["file"]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.body)
        elif block.kind == "sql":
            _run_sql(block, folder, environment["PG_URL"])
        elif block.kind == "console":
            count += _run_commands(block, folder, environment)
    return count


def _run_sql(block: Block, folder: Path, pg_url: str) -> None:
    if "sqlite" in block.options:
        with closing(sqlite3.connect(folder / block.options["sqlite"])) as database, database:
            database.executescript(block.body)
    else:
        with psycopg.connect(pg_url, autocommit=True) as database:
            database.execute(block.body)


def _run_commands(block: Block, folder: Path, environment: Mapping[str, str]) -> int:
    steps = re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]
    for step in steps:
        command, _, expected = step.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command = f"{command[:-1]}{more.strip()}"
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert _matches(expected, done.stdout), (
            f"$ {command}\n--- shown:\n{expected}\n--- printed:\n{done.stdout}\n{done.stderr}"
        )
    return len(steps)


def _matches(shown: str, printed: str) -> bool:
    pattern = re.escape(shown.strip()).replace(re.escape("…"), ".*")
    # Columns are as wide as what is in them, and that is not the same on every day.
    pattern = re.sub(r"(?:\\ )+", r" +", pattern)
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
