"""Checks of the environment: Python, Java, libraries, memory, disk, store, catalog, sources."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.config.project import ProjectSettings
from headwater.engine.spark.session import find_java
from headwater.model.errors import HeadwaterError, JarsMissing
from headwater.model.secret import masked
from headwater.services.jars import cache_folder, inspect

_PYTHON = (3, 11)
_PYSPARK = "4.1."
_GIGABYTE = 1024**3
_MIN_DISK_BYTES = _GIGABYTE  # a first load needs about that much
_UNITS = {"k": 1024, "m": 1024**2, "g": _GIGABYTE, "t": 1024**4}

Check = Callable[[], str]  # returns the state; raises HeadwaterError with the remedy


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    ok: bool
    found: str
    remedy: str = ""


def examine(settings: ProjectSettings, folder: Path, store: Check, sources: Mapping[str, Check]) -> Iterator[Finding]:
    """Run the checks, cheap ones first. Starts no JVM but `java -version`."""
    yield _python()
    yield _pyspark()
    yield _run("java", _java)
    yield _run("jars", _jars)
    yield _memory(settings.spark.memory)
    yield _disk("disk of the project", folder)
    yield _run("progress store", store)
    yield _catalog(settings, folder)
    for name, source in sources.items():
        yield _run(f"source of {name}", source)


def _run(subject: str, check: Check) -> Finding:
    try:
        return Finding(subject, ok=True, found=masked(check()))
    except HeadwaterError as error:
        return Finding(subject, ok=False, found=masked(error.message), remedy=masked(error.hint))


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= _PYTHON
    return Finding("python", ok=ok, found=version, remedy="" if ok else "use Python 3.11 or newer")


def _pyspark() -> Finding:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return Finding("pyspark", ok=False, found="not installed", remedy="pip install headwater")
    ok = version.startswith(_PYSPARK)
    remedy = "" if ok else f"install PySpark {_PYSPARK}x: the Iceberg libraries require it"
    return Finding("pyspark", ok=ok, found=version, remedy=remedy)


def _java() -> str:
    java = find_java()
    return f"{java.version} ({java.executable})"


def _jars() -> str:
    folder = cache_folder()
    states = inspect(folder, checksums=False)
    broken = [jar.name for jar in states if jar.state != "present"]
    if broken:
        raise JarsMissing(f"{', '.join(broken)} missing or damaged in {folder}", hint="run: headwater jars fetch")
    return f"{len(states)} in {folder}"


def _memory(configured: str) -> Finding:
    need = int(configured[:-1]) * _UNITS[configured[-1].lower()]
    free = _free_memory()
    ok = free >= need
    state = f"{free / _GIGABYTE:.1f} GB free, spark.memory is {configured}"
    return Finding("memory", ok=ok, found=state, remedy="" if ok else "lower spark.memory in headwater.yaml")


def _free_memory() -> int:
    """The memory for a new process: the machine's, or what a container's limit leaves."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else free
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text().strip()).isdecimal():
        free = min(free, int(text) - int(used.read_text()))
    return free


def _disk(subject: str, folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    ok = free >= _MIN_DISK_BYTES and os.access(folder, os.W_OK)
    remedy = "" if ok else f"free some space, or make {folder} writable"
    return Finding(subject, ok=ok, found=f"{free / _GIGABYTE:.1f} GB free in {folder}", remedy=remedy)


def _catalog(settings: ProjectSettings, folder: Path) -> Finding:
    lake = settings.lake
    if lake.catalog:
        catalog_type = lake.catalog.get("type") or lake.catalog.get("catalog-impl", "unknown")
        command = f"headwater sql 'SHOW NAMESPACES IN {lake.name}'"
        return Finding("catalog", ok=True, found=f"{lake.name} is of type {catalog_type}; ask it with: {command}")
    root = folder / ".headwater" if "://" in lake.warehouse else (folder / lake.warehouse).resolve()
    database = root / "catalog.db"
    if not database.exists():
        return Finding("catalog", ok=True, found=f"{lake.name}: does not exist yet; the first run creates it in {root}")
    try:
        with sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("SELECT count(*) FROM iceberg_tables").fetchone()
    except sqlite3.Error as error:
        remedy = f"restore {database} from a backup; the tables are in {lake.warehouse}"
        return Finding("catalog", ok=False, found=f"{database} cannot be read: {error}", remedy=remedy)
    return Finding("catalog", ok=True, found=f"{lake.name}: {count} tables in {database}")


def all_ok(findings: Sequence[Finding]) -> bool:
    return all(finding.ok for finding in findings)
