"""The JVM libraries: fetched once, verified, repaired; no network is one clear error."""

from __future__ import annotations

import shutil

import pytest

from headwater.model.errors import JarsMissing
from headwater.services import jars


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A private copy of the cache, so that a test may damage it."""
    jars.ensure_jars(print)
    shutil.copytree(jars.cache_folder(), tmp_path / "spark")
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path))
    return tmp_path / "spark"


@pytest.fixture
def no_network(monkeypatch):
    """A proxy that nobody listens at: every download is refused."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")


def test_jars_in_the_cache_need_no_network(folder, no_network):
    said = []
    paths = jars.ensure_jars(said.append)
    assert [path.name for path in paths] == list(jars.declared())
    assert said == []


def test_a_half_finished_download_is_repaired(folder):
    victim = folder / jars.declared()[1]
    whole = victim.read_bytes()
    victim.write_bytes(whole[: len(whole) // 2])
    assert [jar.name for jar in jars.inspect(folder, checksums=False) if jar.state == "damaged"] == [victim.name]
    jars.ensure_jars(print)
    assert victim.read_bytes() == whole


def test_a_changed_byte_is_found_by_its_checksum(folder):
    victim = folder / jars.declared()[1]
    content = bytearray(victim.read_bytes())
    content[1000] ^= 1
    victim.write_bytes(content)
    assert [jar.name for jar in jars.inspect(folder, checksums=True) if jar.state == "damaged"] == [victim.name]


def test_without_network_the_error_names_the_jar_and_the_remedy(folder, no_network):
    missing = jars.declared()[0]
    (folder / missing).unlink()
    with pytest.raises(JarsMissing) as failure:
        jars.ensure_jars(print)
    assert missing in failure.value.message
    assert "headwater jars fetch" in failure.value.hint
    assert not list(folder.glob(".fetching-*"))
