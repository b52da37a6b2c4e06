"""The JVM libraries: declared in ivy/ivy.xml, fetched once by the Ivy inside PySpark, verified by checksum."""

from __future__ import annotations

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

from headwater.engine.java import find_java
from headwater.model.errors import JarsMissing

_IVY = Path(__file__).parent / "ivy"
_MANIFEST = "manifest.json"
_REPAIR = "headwater jars fetch"


@dataclass(frozen=True)
class Jar:
    """One library and its state in the cache."""

    name: str
    path: Path
    state: str  # present · missing · damaged


def cache_folder() -> Path:
    """HEADWATER_JARS, else the user's cache folder; one folder per ivy.xml, so versions live side by side."""
    if given := os.environ.get("HEADWATER_JARS"):
        return Path(given)
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "headwater" / f"jars-{_declaration_digest()[:12]}"


def declared() -> Sequence[str]:
    """The file names that ivy.xml asks for."""
    dependencies = ET.parse(_IVY / "ivy.xml").iter("dependency")  # noqa: S314 - our own file
    return tuple(f"{d.attrib['name']}-{d.attrib['rev']}.jar" for d in dependencies)


def ensure_jars(say: Callable[[str], None]) -> Sequence[Path]:
    """The jars' paths; fetched first if one is missing or its size is not what was fetched."""
    folder = cache_folder()
    if all(jar.state == "present" for jar in inspect(folder, checksums=False)):
        return [folder / name for name in declared()]
    with _locked(folder):
        # Another process may have fetched them while we waited for the lock.
        if any(jar.state != "present" for jar in inspect(folder, checksums=False)):
            say(f"fetching {len(declared())} JVM libraries (about 60 MB, once) into {folder}")
            fetch(folder)
    return [folder / name for name in declared()]


def inspect(folder: Path, *, checksums: bool) -> Sequence[Jar]:
    """The state of every jar: by size, and by checksum when asked."""
    manifest = _read_manifest(folder)
    return [Jar(name, folder / name, _state(folder / name, manifest.get(name), checksums)) for name in declared()]


def fetch(folder: Path) -> None:
    """Resolve with Ivy into a new folder and move each jar into place; a half-finished download never counts."""
    java = find_java().executable
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as work:
        target = Path(work) / "lib"
        command = [
            str(java), "-cp", f"{_pyspark_jars()}/*", "org.apache.ivy.Main",
            "-settings", str(_IVY / "ivysettings.xml"), "-ivy", str(_IVY / "ivy.xml"), "-confs", "spark",
            "-cache", str(Path(work) / "cache"), "-types", "jar", "bundle",
            "-retrieve", f"{target}/[artifact]-[revision].[ext]",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        missing = [name for name in declared() if not (target / name).exists()]
        if done.returncode != 0 or missing:
            raise JarsMissing(
                f"could not fetch {', '.join(missing) or 'the JVM libraries'} from Maven Central: {_reason(done.stdout)}",
                hint=f"check the network and run: {_REPAIR}; or copy the jars into {folder} from another machine",
            )
        sums = {
            name: {"bytes": (target / name).stat().st_size, "sha256": _sha256(target / name)} for name in declared()
        }
        for name in declared():
            (target / name).replace(folder / name)
        scratch = Path(work) / _MANIFEST
        scratch.write_text(json.dumps(sums, indent=2))
        scratch.replace(folder / _MANIFEST)


def _state(path: Path, known: dict[str, object] | None, checksums: bool) -> str:  # noqa: FBT001 - private
    if not path.exists():
        return "missing"
    if known is None:
        # Copied in by hand: the name is all there is to go by.
        return "present" if path.stat().st_size > 0 and not (path.parent / _MANIFEST).exists() else "damaged"
    if path.stat().st_size != known["bytes"] or (checksums and _sha256(path) != known["sha256"]):
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
    return problems[0] if problems else (output.strip().splitlines() or ["Ivy said nothing"])[-1].strip()


def _declaration_digest() -> str:
    return _sha256(_IVY / "ivy.xml")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsMissing("PySpark is not installed", hint="pip install headwater")
    return Path(spec.origin).parent / "jars"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(folder: Path) -> None:
    """Forget every fetched jar."""
    shutil.rmtree(folder, ignore_errors=True)
