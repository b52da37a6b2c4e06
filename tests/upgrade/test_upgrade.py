"""Stores and tables that version 0.1.0 wrote, with a window begun and not finished: the code of today finishes it, once.

A window keeps the id under which 0.1.0 landed it, whatever marks look like now; else it would land twice. `README.md`
says how the files were recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app
from headwater.config.project import LakeSettings
from headwater.engine.spark.session import catalog_conf
from tests.upgrade.archive import move_lake, unpack
from tests.upgrade.cells import CELLS, Cell, Objects, Place, Rows, Servers, catalog
from tests.upgrade.landed import Target, printed_rows, targets
from tests.upgrade.record import RECORD
from tests.upgrade.servers import (
    kafka_server,
    postgres_server,
    s3_keeps_times,
    s3_server,
)

pytestmark = [pytest.mark.spark, pytest.mark.servers]

RECORDED = Path(__file__).parent / "recorded_0_1_0"
IN_A_PROCESS = {"sqlite_append"}  # recovered as by a user; all other cycles share the worker's Spark session
Call = Callable[..., tuple[str, str]]
PROMISED = {
    "column": ("kind", "column", "type", "value"),
    "offsets": ("kind", "topics"),
    "objects": ("kind", "generation", "count"),
    "lsn": ("kind", "lsn"),
}


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The recorded sources, each server started by the first cell that asks for it."""
    folder = tmp_path_factory.mktemp
    with ExitStack() as stack:
        postgres = cache(lambda: stack.enter_context(postgres_server(RECORDED / "postgres.tar.xz")))
        kafka = cache(lambda: stack.enter_context(kafka_server(folder("kafka"), RECORDED / "kafka.tar.xz")))
        s3 = cache(lambda: stack.enter_context(s3_server(folder("s3"))))
        yield Servers(postgres, kafka, s3)


@dataclass(frozen=True)
class Unpacked:
    """A cell on this machine, and how its pipeline is run."""

    cell: Cell
    location: Place
    recorded: Mapping[str, Any]
    spark: Any
    targets: Mapping[str, Target]

    def run(self, call: Call | None = None) -> tuple[Mapping[str, Any], str]:
        """The result of one cycle, and what it printed beside it."""
        out, printed = (call or in_this_process)("run", f"{self.cell.name}.yaml", "--once", "--json")
        return json.loads(out), printed

    def mark(self) -> Any:
        return promised(json.loads(in_this_process("marks", self.cell.name, "--json")[0])["mark"])

    def history(self) -> Sequence[Mapping[str, Any]]:
        """The oldest entry first."""
        return json.loads(in_this_process("history", self.cell.name, "--json")[0])["history"][::-1]

    def content(self) -> Mapping[str, Rows]:
        return {name: target.rows() for name, target in self.targets.items()}

    def expected(self, batches: int) -> Mapping[str, Rows]:
        return {name: target.sink.expected(batches) for name, target in self.targets.items()}

    def windows(self) -> Mapping[str, Sequence[str]]:
        """Of the targets that tell."""
        windows = {name: target.windows() for name, target in self.targets.items()}
        return {name: ids for name, ids in windows.items() if ids}


@pytest.fixture(params=CELLS.values(), ids=list(CELLS))
def unpacked(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: Servers
) -> Unpacked:
    cell: Cell = request.param
    if isinstance(cell.source, Objects) and not s3_keeps_times():
        pytest.skip("moto sets the time of change of objects itself, and bookmarks hold it: build versitygw")
    location = Place(cell.name, tmp_path / cell.name, servers)
    unpack(RECORDED / f"{cell.name}.tar.xz", location.folder)
    recorded = json.loads((location.folder / RECORD).read_text())
    spark = None
    if any("iceberg" in sink.settings for sink in cell.sinks):
        move_lake(location.folder / "lake", recorded["folder"], str(location.folder))
        spark = request.getfixturevalue("spark")
        for name, text in catalog_conf(LakeSettings(name=catalog(cell.name)), location.folder).items():
            spark.conf.set(name, text)
    if isinstance(cell.source, Objects):
        for batch in (1, 2):
            cell.source.add(location, batch)
    monkeypatch.chdir(location.folder)
    for name, text in cell.environment(location).items():
        monkeypatch.setenv(name, text)
    return Unpacked(cell, location, recorded, spark, targets(cell, location, spark))


def in_this_process(*arguments: str) -> tuple[str, str]:
    done = CliRunner().invoke(app, arguments, prog_name="headwater")
    assert done.exit_code == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def in_a_process(*arguments: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "headwater.cli.main", *arguments]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def promised(mark: Any) -> Any:
    """What the public shape of a mark promises: the rest is the engine's own."""
    if mark is None:
        return None
    if mark["kind"] == "streams":
        return {"kind": "streams", "streams": {name: promised(one) for name, one in mark["streams"].items()}}
    return {name: mark[name] for name in PROMISED[mark["kind"]]}


def test_a_window_that_0_1_0_began_is_finished_once_and_under_its_id(unpacked: Unpacked) -> None:
    cell, location = unpacked.cell, unpacked.location
    before = unpacked.windows()
    assert unpacked.mark() == promised(unpacked.recorded["progress"]["mark"])
    # There is more to read now: a window that is planned anew would end elsewhere than the one that landed.
    cell.source.add(location, 3)
    if cell.paused:
        lift_refusal(unpacked)

    result, printed = unpacked.run(in_a_process if cell.name in IN_A_PROCESS else in_this_process)
    assert result["outcome"] == "landed", result
    assert unpacked.content() == unpacked.expected(3)
    check_windows(before, unpacked.windows(), unpacked.recorded["window"])
    check_mark(unpacked, 3)
    check_history(unpacked)
    check_rejects(unpacked)
    check_printed(cell, printed, 1, 3)

    earlier = unpacked.windows()
    cell.source.add(location, 4)
    result, printed = unpacked.run()
    assert (result["outcome"], result["recovered"]) == ("landed", False)
    assert result["rows"] == {"read": cell.source.rows(4), "landed": cell.source.rows(4), "rejected": 0}
    assert unpacked.content() == unpacked.expected(4)
    assert {target: ids[:-1] for target, ids in unpacked.windows().items()} == earlier
    check_mark(unpacked, 4)
    check_printed(cell, printed, 3, 4)
    assert unpacked.run()[0]["outcome"] == "nothing new"


def lift_refusal(unpacked: Unpacked) -> None:
    """What `record` did to the table of the paused stream is undone."""
    table = f"{catalog(unpacked.cell.name)}.shop.{unpacked.cell.paused}_append"
    unpacked.spark.sql(f"ALTER TABLE {table} DROP COLUMN item")
    unpacked.spark.sql(f"ALTER TABLE {table} RENAME COLUMN aside TO item")


def check_windows(before: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], begun: str) -> None:
    """What had landed is as it was, the window of 0.1.0 is there once, and one more holds what came since."""
    assert set(before) == set(after)
    for target, ids in after.items():
        assert ids[: len(before[target])] == before[target], target
        assert ids[1] == begun, target
        assert len(ids) == len(set(ids)) == 3, target


def check_mark(unpacked: Unpacked, batches: int) -> None:
    mark, expected = unpacked.mark(), unpacked.cell.source.mark(batches)
    if expected is not None:
        assert mark == expected
    else:
        begun = unpacked.recorded["progress"]["intent"]["window"]["end"]
        assert mark["kind"] == "lsn"
        assert lsn(mark["lsn"]) > lsn(begun["lsn"])


def lsn(text: str) -> tuple[int, ...]:
    return tuple(int(part, 16) for part in text.split("/"))


def check_history(unpacked: Unpacked) -> None:
    landed = [entry for entry in unpacked.history() if entry["kind"] == "landed"]
    assert len(landed) >= 3, "a window of its own for what 0.1.0 had begun"
    first, begun, new = landed[-3:]
    assert first["epoch"] < begun["epoch"] <= new["epoch"]
    intent = unpacked.recorded["progress"]["intent"]
    if intent:
        assert intent["run"] in begun["why"]
        assert begun["rows"] == unpacked.cell.source.rows(2)
        # A table of changes takes none twice: landed under another id, the window would bring it no row.
        assert all(sink["rows"] for sink in begun["sinks"])
        assert new["rows"] == unpacked.cell.source.rows(3)


def check_rejects(unpacked: Unpacked) -> None:
    if unpacked.cell.rejects:
        (table,) = unpacked.targets
        assert unpacked.spark.table(f"{table}__rejects").count() == unpacked.cell.rejects


def check_printed(cell: Cell, printed: str, before: int, batches: int) -> None:
    """A console shows a window again that was killed, and no other."""
    for sink in cell.sinks:
        if "console" in sink.settings:
            assert printed_rows(printed, sink) == sink.expected(batches) - sink.expected(before)
