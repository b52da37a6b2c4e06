"""The JVM libraries: declared in ivy/ivy.xml, fetched once by the Ivy inside PySpark, verified by checksum."""

from __future__ import annotations

import enum
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from headwater.engine.spark.session import find_java
from headwater.model.errors import JarsMissing

_IVY = Path(__file__).parent / "ivy"
_MANIFEST = "manifest.json"


class JarSet(enum.StrEnum):
    """The configurations of ivy.xml, each fetched at first use."""

    spark = "spark"
    s3a = "s3a"
    broker = "broker"
    connect = "connect"
    debezium = "debezium"

    @property
    def repair(self) -> str:
        """The command that repairs the set."""
        return "headwater jars fetch" if self is JarSet.spark else f"headwater jars fetch --set {self}"


_MEGABYTES = {JarSet.spark: 61, JarSet.s3a: 71, JarSet.broker: 44, JarSet.connect: 34, JarSet.debezium: 5}


@dataclass(frozen=True)
class Jar:
    """One library and its state in the cache."""

    name: str
    path: Path
    state: str  # present · missing · damaged


def cache_folder(which: JarSet = JarSet.spark) -> Path:
    """In HEADWATER_JARS, else in the user's cache folder; one folder per declaration, so versions coexist."""
    if configured := os.environ.get("HEADWATER_JARS"):
        return Path(configured) / which
    return cache_root() / f"{which}-{_declaration_digest(which)[:12]}"


def cache_root() -> Path:
    """The cache of everything that was fetched or built once for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


def declared_jars(which: JarSet = JarSet.spark) -> Sequence[str]:
    """The file names in ivy.xml; a set may hold more, as dependencies."""
    return tuple(_file_name(dependency) for dependency in _dependencies(which))


def declared_version(which: JarSet) -> str:
    """The version of a set: that of its first dependency."""
    return _dependencies(which)[0].attrib["rev"]


def ensure_jars(say: Callable[[str], None], which: JarSet = JarSet.spark) -> Sequence[Path]:
    """The jars' paths; fetched first if one is missing or has another size."""
    folder = cache_folder(which)
    if not _is_complete(folder, which):
        with lock_folder(folder):
            # Another process may have fetched them while we waited for the lock.
            if not _is_complete(folder, which):
                say(f"fetching the JVM libraries for {which} (about {_MEGABYTES[which]} MB, once) into {folder}")
                fetch(folder, which)
    return [jar.path for jar in inspect(folder, which, checksums=False)]


def _is_complete(folder: Path, which: JarSet) -> bool:
    return all(jar.state == "present" for jar in inspect(folder, which, checksums=False))


def inspect(folder: Path, which: JarSet = JarSet.spark, *, checksums: bool) -> Sequence[Jar]:
    """The state of every jar: by size, and by checksum when asked."""
    manifest = _read_manifest(folder)
    names = dict.fromkeys([*declared_jars(which), *manifest])
    return [Jar(name, folder / name, _state(folder / name, manifest.get(name), checksums)) for name in names]


def fetch(folder: Path, which: JarSet = JarSet.spark) -> None:
    """Resolve with Ivy into a new folder, then move each jar into place; a partial download never counts."""
    java = find_java().executable
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as work:
        target = Path(work) / "lib"
        command = [
            str(java), "-cp", f"{_pyspark_jars()}/*", "org.apache.ivy.Main",
            "-settings", str(_IVY / "ivysettings.xml"), "-ivy", str(_IVY / "ivy.xml"), "-confs", which,
            "-cache", str(Path(work) / "cache"), "-types", "jar", "bundle", "tar.gz",
            "-retrieve", f"{target}/[artifact]-[revision].[ext]",
        ]  # fmt: skip
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        missing = [name for name in declared_jars(which) if not (target / name).exists()]
        if process.returncode != 0 or missing:
            raise JarsMissing(
                f"could not fetch {', '.join(missing) or 'the JVM libraries'} from Maven Central: {_reason(process.stdout)}",
                hint=f"check the network and run: {which.repair}; or copy the jars into {folder} from another machine",
            )
        paths = sorted(target.iterdir())
        manifest = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in paths}
        for path in paths:
            path.replace(folder / path.name)
        scratch = Path(work) / _MANIFEST
        scratch.write_text(json.dumps(manifest, indent=2))
        scratch.replace(folder / _MANIFEST)


def _state(path: Path, entry: dict[str, object] | None, checksums: bool) -> str:  # noqa: FBT001 - private
    if not path.exists():
        return "missing"
    if entry is None:
        # Copied in by hand: there is only the name to check.
        return "present" if path.stat().st_size > 0 and not (path.parent / _MANIFEST).exists() else "damaged"
    if path.stat().st_size != entry["bytes"] or (checksums and _sha256(path) != entry["sha256"]):
        return "damaged"
    return "present"


def _read_manifest(folder: Path) -> dict[str, dict[str, object]]:
    try:
        return dict(json.loads((folder / _MANIFEST).read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _reason(output: str) -> str:
    problems = [
        line.strip() for line in output.splitlines() if "not found" in line or "Exception" in line or "refused" in line
    ]
    return problems[0] if problems else (output.strip().splitlines() or ["no output from Ivy"])[-1].strip()


def _dependencies(which: JarSet) -> Sequence[ET.Element]:
    dependencies = ET.parse(_IVY / "ivy.xml").iter("dependency")  # noqa: S314 - our own file
    return [
        dependency
        for dependency in dependencies
        if which in {mapping.partition("->")[0] for mapping in dependency.attrib["conf"].split(";")}
    ]


def _file_name(dependency: ET.Element) -> str:
    artifact = dependency.find("artifact")
    extension = "jar" if artifact is None else artifact.attrib["ext"]
    return f"{dependency.attrib['name']}-{dependency.attrib['rev']}.{extension}"


def _declaration_digest(which: JarSet) -> str:
    text = b"".join(ET.tostring(dependency) for dependency in _dependencies(which))
    return hashlib.sha256(text).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsMissing("PySpark is not installed", hint="pip install headwater")
    return Path(spec.origin).parent / "jars"


def remove(folder: Path) -> None:
    """Delete every fetched jar."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Create the folder and lock it for the block; the lock ends with the process at the latest."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
