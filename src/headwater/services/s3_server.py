"""An S3 server of our own: versitygw where there is Go to build it, else moto from PyPI.

versitygw keeps objects as files and is held to S3's promises by its own tests. moto keeps them in memory, so a restart
forgets them, and accepts wrong checksums.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from headwater.model.errors import EnvironmentFault
from headwater.services import versitygw
from headwater.services.child_process import Launch
from headwater.services.service import Say

_REGION = "us-east-1"
_ACCESS_KEY, _SECRET_KEY = "headwater", "headwater-secret"
_CHECK_SECONDS = 2.0


@dataclass(frozen=True)
class S3:
    """The server. Without `may_build` it is moto until somebody built versitygw: a build takes minutes.

    With `keep_alive` a connection serves many requests, as the real S3's do; versitygw then misreads Arrow's uploads.
    """

    may_build: bool = True
    keep_alive: bool = False

    name = "s3"
    port_names = ("http",)
    stop_signal = signal.SIGTERM

    @property
    def version(self) -> str:
        return f"versitygw {versitygw.VERSION}" if versitygw.program().exists() else f"moto {_moto_version()}"

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:
        if self.may_build and versitygw.go_is_there():
            _try_to_build(say)
        at = f"127.0.0.1:{ports['http']}"
        if versitygw.program().exists():
            kept = ["--keep-alive"] if self.keep_alive else []
            return Launch(
                [versitygw.program(), "--port", at, "--region", _REGION, "--quiet", *kept, "posix", *_storage(folder)],
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
    """Arrow's client for the server; it may make buckets."""
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
        versitygw.build(say)
    except EnvironmentFault as fault:
        if _moto_version() is None:
            raise
        say(f"{fault.message}; moto takes its place")


def _moto_version() -> str | None:
    try:
        return importlib.metadata.version("moto")
    except importlib.metadata.PackageNotFoundError:
        return None


def _storage(folder: Path) -> Sequence[str]:
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    if _keeps_attributes(objects):
        return [str(objects)]
    # Etags and the like are attributes of the files; where the disk has none they get files of their own.
    beside = folder / "attributes"
    beside.mkdir(exist_ok=True)
    return ["--sidecar", str(beside), str(objects)]


def _keeps_attributes(folder: Path) -> bool:
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
