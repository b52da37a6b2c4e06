"""The Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater.model.errors import JavaMissing

SUPPORTED = (17, 21)
_HINT = "install Java 17 or 21 (for example: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it"


@dataclass(frozen=True)
class Java:
    """A Java that Spark can use."""

    executable: Path
    version: int


def find_java() -> Java:
    """The Java of JAVA_HOME, else of the PATH. Raises JavaMissing with one clear sentence."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not Path(found).exists():
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise JavaMissing(f"Java 17 or 21 is needed, and there is none in {where}", hint=_HINT)
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    version = int(match[1]) if match else 0
    if version not in SUPPORTED:
        raise JavaMissing(f"Java 17 or 21 is needed, and {found} is version {version or 'unknown'}", hint=_HINT)
    return Java(Path(found), version)
