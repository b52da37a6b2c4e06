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


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a space in its name, and the demo run in it."""
    home = tmp_path_factory.mktemp("a home")
    done = subprocess.run([*HEADWATER, "demo", "--json"], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (home / "result.json").write_text(done.stdout)
    (home / "story.txt").write_text(done.stderr)
    return home


@pytest.fixture
def result(home: Path) -> dict:
    return json.loads((home / "result.json").read_text())


@pytest.mark.spark
@pytest.mark.timeout(600)
class TestAfterTheDemo:
    def test_the_lake_holds_every_row_once_after_a_crash(self, result):
        assert result["landed"] == {
            "customers": {"shop": 5, "lake": 5, "log": 6, "versions": 6},
            "orders": {"shop": 11, "lake": 11, "log": 16, "versions": 16},
        }
        assert [cycle["recovered"] for cycle in result["cycles"]] == [False, True, False]

    def test_the_story_shows_the_crash_the_mark_and_the_record(self, home):
        story = (home / "story.txt").read_text()
        assert "SIGKILL" in story
        assert "The mark has not moved" in story
        assert "finished what run" in story
        assert str(home / "headwater-demo") in story

    def test_every_command_that_it_shows_works(self, home, result):
        by_state, history, marks, pyiceberg, duckdb = (shell(each, home) for each in result["commands"])
        assert "shipped" in by_state
        assert history.count("landed") == 3
        assert "2026-03-04T09:15:00" in marks
        assert pyiceberg.count("shipped") == 4
        assert "Katherine" in duckdb

    def test_it_starts_over_in_its_own_folder(self, home):
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
