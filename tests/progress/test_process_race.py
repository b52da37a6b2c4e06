"""Thousands of cycles under eight processes, some of them killed: no mark lost, none backwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.testing.progress_contract import StoreTarget
from headwater.testing.progress_race import Race, run_race
from tests.progress.stores import FileTarget, PostgresTarget, SqliteTarget


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> StoreTarget:
    match request.param:
        case "file":
            return FileTarget(tmp_path / "data")
        case "sqlite":
            return SqliteTarget(tmp_path / "data")
        case _:
            return PostgresTarget(request.getfixturevalue("progress_url"))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()


@pytest.mark.slow
def test_eight_processes_count_together(target: StoreTarget, tmp_path: Path) -> None:
    run_race(Race(target.open, tmp_path, goal=100))


@pytest.mark.slow
def test_a_killed_process_is_replaced_and_its_step_finished(target: StoreTarget, tmp_path: Path) -> None:
    outcome = run_race(Race(target.open, tmp_path, goal=100, processes=4, ttl_seconds=0.2, kill_every_seconds=0.15))
    assert outcome.kills > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kill_every_seconds", [None, 0.5], ids=["undisturbed", "with kills"])
def test_ten_thousand_cycles_under_eight_processes(
    target: StoreTarget, tmp_path: Path, kill_every_seconds: float | None, record_property
) -> None:
    outcome = run_race(
        Race(
            target.open,
            tmp_path,
            goal=10_000,
            ttl_seconds=30.0 if kill_every_seconds is None else 0.5,
            kill_every_seconds=kill_every_seconds,
            timeout_seconds=1700,
        )
    )
    record_property("cycles per second", round(10_000 / outcome.seconds, 1))
    record_property("kills", outcome.kills)
    print(f"{10_000 / outcome.seconds:.0f} cycles/s, {outcome.kills} kills, {outcome.acknowledged} acknowledged")  # noqa: T201
