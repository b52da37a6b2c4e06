"""`headwater doctor`, `headwater jars` and shell completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.command import complete_names
from tests.support.command_line import ORDERS, Headwater, Shop


@pytest.mark.usefixtures("jars")
def test_a_healthy_project_gets_a_tick_on_every_line(headwater: Headwater, shop: Shop) -> None:
    done = headwater("doctor", "--set", "spark.memory=64m")
    lines = done.out.splitlines()
    subjects = [line[2:].split(":")[0] for line in lines if line[0] in "✓✗"]
    assert subjects == [
        "python", "pyspark", "java", "jars", "memory", "disk of the project", "progress store", "catalog",
        "source of orders",
    ]  # fmt: skip
    assert done.code == 0, done.out
    assert all(line.startswith("✓") for line in lines)
    assert shop.file.exists()


def test_each_broken_part_is_named_with_what_to_do(
    headwater: Headwater, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(shop.folder))
    monkeypatch.setenv("HEADWATER_JARS", str(shop.folder / "jars"))
    (shop.folder / "shop.db").unlink()
    (shop.folder / "lake").mkdir()
    (shop.folder / "lake" / "catalog.db").write_text("no database, but long enough to be looked at")
    (shop.folder / "wrong.yaml").write_text("pipelin: x")
    done = headwater("doctor", "--json", "--set", "spark.memory=900t")
    assert done.code == 3
    broken = {f["subject"]: f["remedy"] for f in done.json["findings"] if not f["ok"]}
    assert set(broken) == {
        "settings in wrong.yaml", "java", "jars", "memory", "catalog", "source of orders",
    } or set(broken) == {
        f"settings in {shop.folder / 'wrong.yaml'}", "java", "jars", "memory", "catalog", "source of orders",
    }  # fmt: skip
    assert all(broken.values())
    assert "→ install Java 17 or 21" in headwater("doctor").out


def test_a_store_that_is_away_is_a_finding_not_a_failure(headwater: Headwater, shop: Shop) -> None:
    done = headwater("doctor", "--json", "--progress", "postgresql://u:hunter2@127.0.0.1:1/x")
    (finding,) = [f for f in done.json["findings"] if f["subject"] == "progress store"]
    assert not finding["ok"]
    assert "hunter2" not in done.out + done.err
    assert shop.file.exists()


def test_jars_are_shown_and_missing_ones_exit_3(
    headwater: Headwater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path / "none"))
    done = headwater("jars")
    assert done.code == 3
    assert "missing" in done.out
    assert "headwater jars fetch" in done.err
    refused = headwater("jars", "remove")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert headwater("jars", "remove", "--yes").code == 0


def test_the_shell_completes_pipeline_names_and_never_sees_an_error(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    assert complete_names("or") == ["orders"]
    assert complete_names("x") == []
    (shop.folder / "headwater.yaml").write_text("progres: x")
    assert complete_names("or") == []


def test_completion_works_through_the_shell_s_protocol(headwater: Headwater, shop: Shop) -> None:
    shop.file.write_text(ORDERS)
    headwater("run", shop.file, "--once")
    done = subprocess.run(
        [sys.executable, "-c", "from headwater.cli.main import main; main()"],
        cwd=shop.folder,
        env={
            "_HEADWATER_COMPLETE": "complete_bash",
            "COMP_WORDS": "headwater marks or",
            "COMP_CWORD": "2",
            "_TYPER_COMPLETE_ARGS": "headwater marks or",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["orders"]
