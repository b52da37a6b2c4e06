"""A local S3 server: versitygw if Go is installed to build it (`python -m headwater.services.stack.s3`), else moto from PyPI."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from headwater.model.errors import EnvironmentFault
from headwater.services.jars import cache_root, lock_folder
from headwater.services.stack.service import Launch, Say

# versitygw stores objects as files and its own tests check S3's semantics. moto stores them in memory, so a restart
# loses them, and accepts wrong checksums.

_REGION = "us-east-1"
_ACCESS_KEY, _SECRET_KEY = "headwater", "headwater-secret"
_CHECK_SECONDS = 2.0


@dataclass(frozen=True)
class S3:
    """The server. Without `may_build` it is moto until versitygw is built: a build takes minutes.

    With `keep_alive` a connection serves many requests, as in real S3; versitygw then misreads Arrow's uploads.
    """

    may_build: bool = True
    keep_alive: bool = False

    name = "s3"
    port_names = ("http",)
    stop_signal = signal.SIGTERM

    @property
    def version(self) -> str:
        return f"versitygw {VERSITYGW_VERSION}" if versitygw_program().exists() else f"moto {_moto_version()}"

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        if self.may_build and go_installed():
            _try_to_build(say)
        address = f"127.0.0.1:{ports['http']}"
        if versitygw_program().exists():
            keep_alive = ["--keep-alive"] if self.keep_alive else []
            return Launch(
                [
                    versitygw_program(),
                    "--port",
                    address,
                    "--region",
                    _REGION,
                    "--quiet",
                    *keep_alive,
                    "posix",
                    *_storage(folder),
                ],
                {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY},
            )
        if _moto_version() is None:
            raise EnvironmentFault(
                "an S3 server needs Go, to build versitygw, or the Python package moto",
                hint="install Go, or: pip install 'headwater[stack]'",
            )
        return Launch([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["http"])])

    def check(self, ports: Mapping[str, int]) -> None:
        try:
            client(self.address(ports), timeout_seconds=_CHECK_SECONDS).get_file_info(fs.FileSelector(""))
        except OSError as error:
            raise EnvironmentFault(f"s3 at {self.address(ports)['endpoint']}: {error}") from error

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        return {
            "endpoint": f"http://127.0.0.1:{ports['http']}",
            "region": _REGION,
            "access_key": _ACCESS_KEY,
            "secret_key": _SECRET_KEY,
        }


def client(address: Mapping[str, str], timeout_seconds: float = 30.0) -> fs.S3FileSystem:
    """Arrow's client for the server; it may create buckets."""
    return fs.S3FileSystem(
        endpoint_override=address["endpoint"],
        region=address["region"],
        access_key=address["access_key"],
        secret_key=address["secret_key"],
        allow_bucket_creation=True,
        allow_bucket_deletion=True,
        connect_timeout=timeout_seconds,
        request_timeout=timeout_seconds,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )


def _try_to_build(say: Say) -> None:
    try:
        build_versitygw(say)
    except EnvironmentFault as fault:
        if _moto_version() is None:
            raise
        say(f"{fault.message}; using moto instead")


def _moto_version() -> str | None:
    try:
        return importlib.metadata.version("moto")
    except importlib.metadata.PackageNotFoundError:
        return None


def _storage(folder: Path) -> Sequence[str]:
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    if _has_attributes(objects):
        return [str(objects)]
    # Etags are extended attributes of the files; a disk without them needs sidecar files.
    sidecar = folder / "attributes"
    sidecar.mkdir(exist_ok=True)
    return ["--sidecar", str(sidecar), str(objects)]


def _has_attributes(folder: Path) -> bool:
    if not hasattr(os, "setxattr"):
        return True
    probe = folder.parent / f"probe-{uuid.uuid4().hex}"
    probe.touch()
    try:
        os.setxattr(probe, "user.headwater", b"x")
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


VERSITYGW_VERSION = "1.8.0"
_SOURCE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW_VERSION}"


def versitygw_program() -> Path:
    """The path of the built program."""
    return cache_root() / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"


def go_installed() -> bool:
    return shutil.which("go") is not None


def build_versitygw(say: Say) -> None:
    """Build it unless it exists. A failed build leaves no files."""
    target = versitygw_program()
    with lock_folder(target.parent):
        if target.exists():
            return
        say(f"building versitygw {VERSITYGW_VERSION} with Go, once; this takes some minutes")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as work:
            process = subprocess.run(
                ["go", "install", "-trimpath", "-ldflags=-s -w", _SOURCE],
                cwd=work, env={**os.environ, "GOBIN": work}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if process.returncode != 0:
                last_line = (process.stderr.strip().splitlines() or ["no output from Go"])[-1]
                raise EnvironmentFault(
                    f"versitygw {VERSITYGW_VERSION} could not be built: {last_line}", hint="check the network"
                )
            (Path(work) / target.name).replace(target)


def main() -> None:
    """Build it ahead of time. On failure print the reason and continue: moto is used instead."""
    if versitygw_program().exists() or not go_installed():
        return
    try:
        build_versitygw(_print)
    except EnvironmentFault as fault:
        _print(f"{fault.message}; moto is used instead")


def _print(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
