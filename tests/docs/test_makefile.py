"""make says in one sentence what is missing."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("target", ["demo", "test", "bench", "soak"])
def test_a_machine_without_java_is_told_first(target):
    done = make(target, JAVA_HOME="/nowhere")
    assert done.returncode != 0
    assert done.stdout == ""
    sentence, _ = done.stderr.splitlines()
    assert sentence.startswith("Java 17 or 21 is needed, and there is none (/nowhere/bin/java): install it")


def test_another_java_is_told_by_its_version(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    done = make("java", JAVA_HOME=str(tmp_path))
    assert done.returncode != 0
    assert "is version 11" in done.stderr


def test_an_old_python_is_told_by_name(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    done = make("--always-make", "--file", str(ROOT / "Makefile"), ".venv/installed", f"PYTHON={tmp_path / 'python'}")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr
