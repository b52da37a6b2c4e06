"""The S3 server versitygw, built once from its source where there is Go: `python -m headwater.services.versitygw`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headwater.model.errors import EnvironmentFault
from headwater.services.folder_lock import locked
from headwater.services.jars import cache_root
from headwater.services.service import Say

VERSION = "1.8.0"
_SOURCE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"


def program() -> Path:
    """Where the program is, once it is built."""
    return cache_root() / f"versitygw-{VERSION}" / "versitygw"


def go_is_there() -> bool:
    return shutil.which("go") is not None


def build(say: Say) -> None:
    """Build it unless it is there. A build that breaks off leaves nothing behind."""
    target = program()
    with locked(target.parent):
        if target.exists():
            return
        say(f"building versitygw {VERSION} with Go, once; this takes some minutes")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as work:
            done = subprocess.run(
                ["go", "install", "-trimpath", "-ldflags=-s -w", _SOURCE],
                cwd=work, env={**os.environ, "GOBIN": work}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["Go said nothing"])[-1]
                raise EnvironmentFault(f"versitygw {VERSION} could not be built: {last}", hint="check the network")
            (Path(work) / target.name).replace(target)


def main() -> None:
    """Build it ahead of time. Where that cannot be done, say why and go on: moto takes its place."""
    if program().exists() or not go_is_there():
        return
    try:
        build(_tell)
    except EnvironmentFault as fault:
        _tell(f"{fault.message}; moto takes its place")


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
