"""The one Spark session of a process, started when something first needs it."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.project import LakeSettings, ProjectSettings
from headwater.model.errors import InputError, JavaMissing
from headwater.model.secret import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGING = Path(__file__).parent / "log4j2.properties"
_ICEBERG = "org.apache.iceberg.spark"
_FILE = re.compile(r"^file:(//)?(?=/)")

# What a small machine needs, and what lets several pipelines share the session. A user's `spark.conf` wins.
_DEFAULTS = {
    "spark.sql.extensions": f"{_ICEBERG}.extensions.IcebergSparkSessionExtensions",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class SessionHolder:
    """Starts the session once, however many threads ask, and stops only what it started."""

    def __init__(
        self,
        settings: ProjectSettings,
        folder: Path,
        jars: Callable[[], Sequence[Path]],
        *,
        session: SparkSession | None = None,
    ) -> None:
        self._settings, self._folder, self._jars = settings, folder, jars
        self._lock = threading.Lock()
        self._foreign, self._session = session, session  # one that we did not start, and must not stop

    @property
    def started(self) -> bool:
        return self._session is not None

    def __call__(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                shared = _session_exists()
                self._session = start_session(self._settings, self._folder, self._jars())
                if shared:  # Spark has one session per process
                    self._foreign = self._session
            return self._session

    def for_pipeline(self, name: str) -> SparkSession:
        """The session, with the calling thread's jobs in the pipeline's own fair pool."""
        session = self()
        session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        return session

    def stop(self) -> None:
        """End the session, unless the caller passed it in."""
        with self._lock:
            if self._session is not None and self._foreign is None:
                self._session.stop()
            self._session = self._foreign


def _session_exists() -> bool:
    """True if this process, such as a notebook, has a session already."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None  # noqa: SLF001 - PySpark offers no public question


def start_session(settings: ProjectSettings, folder: Path, jars: Sequence[Path]) -> SparkSession:
    """A session with Iceberg and the lake's catalog. Takes some ten seconds: a JVM starts.

    A process that has a session already, such as a notebook, shares it: it gets the options that can still change.
    """
    find_java()
    # Workers must be this interpreter: another python3 on the PATH lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if settings.spark.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # listen on loopback only
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    conf = SparkConf().setAppName("headwater").setMaster(settings.spark.master)
    options = session_conf(settings, folder, jars)
    conf.setAll(list(options.items()))
    if _session_exists():
        _check_catalog(SparkSession.builder.getOrCreate(), settings.lake, options)
    else:
        for name, value in _worker_sockets(settings).items():
            conf.setIfMissing(name, value)
        log = folder / ".headwater" / "spark.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as spark_log:
            # The JVM's output goes to a file: the terminal belongs to the user's pipelines.
            gateway = launch_gateway(conf, {"stderr": spark_log, "stdout": spark_log})  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _check_catalog(session: SparkSession, lake: LakeSettings, wanted: Mapping[str, str]) -> None:
    """Spark keeps a catalog that it has loaded, whatever its options say later: rows would land in the other lake."""
    prefix = f"spark.sql.catalog.{lake.name}."
    present = session.conf.getAll
    identity = ["warehouse", "type", "catalog-impl", "uri"]
    if lake.catalog and "warehouse" not in lake.model_fields_set | lake.catalog.keys():
        identity.remove("warehouse")  # the default, which such a catalog ignores
    for name in (f"{prefix}{option}" for option in identity):
        values = [str(conf[name]) for conf in (present, wanted) if name in conf]
        if len({_FILE.sub("", value).rstrip("/") for value in values}) > 1:
            theirs, ours = map(masked, values)
            raise InputError(
                f"this process's Spark session has another catalog {lake.name!r}: its {name.removeprefix(prefix)} is "
                f"{theirs}, the project's {ours}",
                hint="give the project's lake another name (lake: {name: …}), or run it in a process of its own",
            )


def _worker_sockets(settings: ProjectSettings) -> Mapping[str, str]:
    """How the JVM talks to its Python workers: over TCP every task waits 40 ms for acknowledgements."""
    if not settings.spark.master.startswith("local"):
        return {}  # executors elsewhere have other folders
    folder = tempfile.mkdtemp(prefix="headwater-workers-")  # Spark itself leaves its sockets behind
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": folder}


def session_conf(settings: ProjectSettings, folder: Path, jars: Sequence[Path]) -> Mapping[str, str]:
    """Every option of the session, as Spark spells it."""
    return {
        **_DEFAULTS,
        "spark.driver.memory": settings.spark.memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.jars": ",".join(str(jar) for jar in jars),
        **catalog_conf(settings.lake, folder),
        **settings.spark.conf,
    }


def catalog_conf(lake: LakeSettings, folder: Path) -> Mapping[str, str]:
    """The lake as a Spark catalog: the user's own, or Iceberg's JDBC catalog on a SQLite file."""
    prefix = f"spark.sql.catalog.{lake.name}"
    # A cached table would hide what another process has just committed.
    fixed = {"warehouse": warehouse_url(lake.warehouse, folder), "cache-enabled": "false"}
    options = {**fixed, **embedded_catalog(lake, folder), **lake.catalog}
    return {prefix: f"{_ICEBERG}.SparkCatalog", **{f"{prefix}.{name}": value for name, value in options.items()}}


def embedded_catalog(lake: LakeSettings, folder: Path) -> Mapping[str, str]:
    if lake.catalog:
        return {}
    database = folder / ".headwater" / "catalog.db"
    if "://" not in lake.warehouse:
        database = (folder / lake.warehouse).resolve() / "catalog.db"
    database.parent.mkdir(parents=True, exist_ok=True)
    uri = f"jdbc:sqlite:file:{database}?busy_timeout=30000"
    return {"type": "jdbc", "uri": uri, "jdbc.schema-version": "V1"}


def warehouse_url(warehouse: str, folder: Path) -> str:
    return warehouse if "://" in warehouse else f"file:{(folder / warehouse).resolve()}"


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
    executable = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if executable is None or not Path(executable).exists():
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise JavaMissing(f"Java 17 or 21 is required; none found in {where}", hint=_HINT)
    result = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', result.stderr + result.stdout)
    version = int(match[1]) if match else 0
    if version not in SUPPORTED:
        raise JavaMissing(f"Java 17 or 21 is required; {executable} is version {version or 'unknown'}", hint=_HINT)
    return Java(Path(executable), version)
