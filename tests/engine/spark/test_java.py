"""A missing or wrong Java is one clear sentence."""

from __future__ import annotations

import pytest

from headwater.engine.spark.session import find_java
from headwater.model.errors import JavaMissing


@pytest.fixture
def java_home(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_a_missing_java_is_told_with_the_place_and_the_remedy(java_home):
    with pytest.raises(JavaMissing, match=r"Java 17 or 21 is required; none found in JAVA_HOME=.*\n.*apt-get"):
        find_java()


@pytest.mark.parametrize("shown", ['openjdk version "1.8.0_392"', 'openjdk version "25.0.1"', "nonsense"])
def test_a_java_that_spark_cannot_use_is_refused_by_its_version(java_home, shown):
    java = java_home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{shown}' >&2\n")
    java.chmod(0o755)
    with pytest.raises(JavaMissing, match=r"Java 17 or 21 is required; .* is version (1|25|unknown)"):
        find_java()


@pytest.mark.parametrize(
    ("shown", "version"), [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "21"', 21)]
)
def test_java_17_and_21_are_found(java_home, shown, version):
    java = java_home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{shown}' >&2\n")
    java.chmod(0o755)
    assert find_java().version == version
