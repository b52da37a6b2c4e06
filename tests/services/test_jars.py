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
    assert [path.name for path in paths] == list(jars.declared_jars())
    assert said == []


@pytest.mark.slow
def test_a_half_finished_download_is_repaired(folder):
    victim = folder / jars.declared_jars()[1]
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    assert [jar.name for jar in jars.inspect(folder, checksums=False) if jar.state == "damaged"] == [victim.name]
    jars.ensure_jars(print)
    assert victim.read_bytes() == content


def test_a_changed_byte_is_found_by_its_checksum(folder):
    victim = folder / jars.declared_jars()[1]
    content = bytearray(victim.read_bytes())
    content[1000] ^= 1
    victim.write_bytes(content)
    assert [jar.name for jar in jars.inspect(folder, checksums=True) if jar.state == "damaged"] == [victim.name]


@pytest.mark.slow
def test_without_network_the_error_names_the_jar_and_the_remedy(folder, no_network):
    missing = jars.declared_jars()[0]
    (folder / missing).unlink()
    with pytest.raises(JarsMissing) as failure:
        jars.ensure_jars(print)
    assert missing in failure.value.message
    assert "headwater jars fetch" in failure.value.hint
    assert not list(folder.glob(".fetching-*"))


def test_an_archive_is_verified_like_a_jar(tmp_path, monkeypatch):
    jars.ensure_jars(print, jars.JarSet.debezium)
    shutil.copytree(jars.cache_folder(jars.JarSet.debezium), tmp_path / "debezium")
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path))
    (archive,) = jars.ensure_jars(print, jars.JarSet.debezium)
    assert archive.name == f"debezium-connector-postgres-{jars.declared_version(jars.JarSet.debezium)}.tar.gz"
    archive.write_bytes(archive.read_bytes()[:1000])
    (archive_state,) = jars.inspect(archive.parent, jars.JarSet.debezium, checksums=False)
    assert archive_state.state == "damaged"


def test_a_library_that_another_one_needs_counts_as_missing_too(tmp_path, monkeypatch):
    jars.ensure_jars(print, jars.JarSet.broker)
    shutil.copytree(jars.cache_folder(jars.JarSet.broker), tmp_path / "broker")
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path))
    assert "slf4j-simple-1.7.36.jar" in jars.declared_jars(jars.JarSet.broker)
    (needed,) = (tmp_path / "broker").glob("scala-library-*.jar")
    needed.unlink()
    states = {jar.name: jar.state for jar in jars.inspect(tmp_path / "broker", jars.JarSet.broker, checksums=False)}
    assert [name for name, state in states.items() if state != "present"] == [needed.name]
    assert len(states) > len(jars.declared_jars(jars.JarSet.broker))


def test_the_command_shows_the_set_that_is_asked_for(headwater, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWATER_JARS", str(tmp_path / "none"))
    done = headwater("jars", "--set", "broker")
    assert done.code == 3
    assert "kafka_2.13-" in done.out
    assert "headwater jars fetch --set broker" in done.err
    assert headwater("jars", "--set", "brokr").code == 2
