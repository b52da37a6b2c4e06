"""The demo tells the truth: it ends in time, and every command that it shows works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.commands.demo.demo import empty_folder

HEADWATER = [sys.executable, "-m", "headwater.cli.main"]


def shell(command: str, cwd: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", command], cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_demo_lands_every_row_once_after_a_crash_and_its_commands_work(tmp_path):
    home = tmp_path / "a home"  # with a space in its name
    home.mkdir()
    done = subprocess.run([*HEADWATER, "demo", "--json"], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["landed"] == {
        "customers": {"shop": 5, "lake": 5, "log": 6, "versions": 6},
        "orders": {"shop": 11, "lake": 11, "log": 16, "versions": 16},
    }
    assert [cycle["recovered"] for cycle in result["cycles"]] == [False, True, False]
    for text in ("SIGKILL", "The mark has not moved", "finished what run", str(home / "headwater-demo")):
        assert text in done.stderr
    by_state, history, marks, pyiceberg, duckdb = (shell(each, home) for each in result["commands"])
    assert "shipped" in by_state
    assert history.count("landed") == 3
    assert "2026-03-04T09:15:00" in marks
    assert pyiceberg.count("shipped") == 4
    assert "Katherine" in duckdb
    (home / "headwater-demo" / "stale.txt").write_text("from the last time")
    empty_folder(home / "headwater-demo")
    assert [path.name for path in (home / "headwater-demo").iterdir()] == [".headwater-demo"]


def test_a_folder_that_is_not_a_demos_is_refused_and_left_alone(tmp_path):
    (tmp_path / "headwater-demo").mkdir()
    (tmp_path / "headwater-demo" / "precious.txt").write_text("mine")
    done = subprocess.run([*HEADWATER, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the demo did not create it" in done.stderr
    assert "--dir DIR" in done.stderr
    assert (tmp_path / "headwater-demo" / "precious.txt").read_text() == "mine"


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "headwater-demo").write_text("mine")
    done = subprocess.run([*HEADWATER, "demo"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
