"""Record stores and tables with an unfinished window: `python -m tests.upgrade.record tests/upgrade/recorded_VERSION`.

Runs the code of this checkout as a user would, in processes of their own, and kills the last one when a sink has just
published. What was recorded by a released version is never recorded again by a newer one: it stands for what users have.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import psycopg

from headwater.api import Project
from tests.upgrade.archive import pack
from tests.upgrade.cells import CELLS, Cell, Place, Servers, catalog
from tests.upgrade.servers import kafka_server, postgres_server, s3_server

RECORD = "recorded.json"
# Servers and Spark make these anew: caches, locks, logs, and checksums of files that are moved.
_NOT_PACKED = {"postmaster.opts", "pg_internal.init", ".lock", ".headwater"}


def main(target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.gettempdir()) / "headwater-recorded"
    shutil.rmtree(root, ignore_errors=True)
    with ExitStack() as stack:
        postgres = cache(lambda: stack.enter_context(postgres_server(None)))
        kafka = cache(lambda: stack.enter_context(kafka_server(root / "kafka", None)))
        s3 = cache(lambda: stack.enter_context(s3_server(root / "s3")))
        servers = Servers(postgres, kafka, s3)
        with psycopg.connect(postgres().url("postgres"), autocommit=True) as admin:
            admin.execute("CREATE DATABASE progress")
        for cell in CELLS.values():
            sys.stderr.write(f"{cell.name}\n")
            place = Place(cell.name, root / cell.name, servers)
            record(cell, place)
        data = postgres().data
        with psycopg.connect(postgres().url("postgres"), autocommit=True) as admin:
            admin.execute("CHECKPOINT")
        postgres().service.stop()
        pack(data, target / "postgres.tar.xz", _is_not_packed)
    pack(root / "kafka" / "data", target / "kafka.tar.xz", _is_not_packed)
    for cell in CELLS.values():
        pack(root / cell.name, target / f"{cell.name}.tar.xz", _is_not_packed)
    shutil.rmtree(root)


def record(cell: Cell, place: Place) -> None:
    """One window that has landed, and one that was killed or refused."""
    place.folder.mkdir(parents=True)
    (place.folder / "headwater.yaml").write_text(json.dumps(cell.project, indent=1))
    file = place.folder / f"{cell.name}.yaml"
    file.write_text(json.dumps(cell.settings, indent=1))
    cell.prepare(place)
    environment = {**os.environ, **cell.environment(place)}
    cell.source.add(place, 1)
    while True:
        done = _headwater(place, environment, "run", file, "--once", "--json")
        assert done.returncode == 0, done.stderr
        if json.loads(done.stdout)["outcome"] == "nothing new":
            break
    cell.source.add(place, 2)
    if cell.paused:
        _refuse(cell, place, environment)
        done = _headwater(place, environment, "run", file, "--once", "--json")
        assert done.returncode == 1, done.stderr
    else:
        fault = {"HEADWATER_FAULT": f"land.published:kill:{cell.killed}"}
        done = _headwater(place, {**environment, **fault}, "run", file, "--once", "--json")
        assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)
    os.environ.update(environment)
    with Project.open(place.folder) as project:
        progress = project.store.load(cell.name)
    window = progress.waiting[0].window if cell.paused else progress.intent.window
    known = {"folder": str(place.folder), "window": window.id, "progress": progress.to_json()}
    (place.folder / RECORD).write_text(json.dumps(known, indent=1))


def _is_not_packed(path: Path) -> bool:
    return path.name in _NOT_PACKED or path.suffix == ".crc"


def _refuse(cell: Cell, place: Place, environment: dict[str, str]) -> None:
    """The lake's table gets a column of numbers where the stream has texts."""
    table = f"{catalog(cell.name)}.shop.{cell.paused}_append"
    for step in ("RENAME COLUMN item TO aside", "ADD COLUMN item bigint"):
        done = _headwater(place, environment, "sql", f"ALTER TABLE {table} {step}")
        assert done.returncode == 0, done.stderr


def _headwater(place: Place, environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.cli.main", *map(str, arguments)],
        cwd=place.folder, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
