"""Crash tests kill real processes: their children borrow one JVM, and the lease of a killed one ends at once.

Starting a JVM for each would take fifteen seconds; the tests do not kill the JVM. The child must not stop the
session.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config.load import load_project
from headwater.progress.file import FileProgress
from headwater.progress.record_store import wall_clock
from headwater.progress.sqlite import SqliteProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lend(spark: SparkSession) -> Mapping[str, str]:
    """The environment that lets a child process borrow this session's JVM."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to its gateway
    if gateway is None:
        raise ValueError("the session has no JVM to lend")
    parameters = gateway.gateway_parameters
    return {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token),
        "PYSPARK_PIN_THREAD": os.environ.get("PYSPARK_PIN_THREAD", "true"),
    }


def borrow() -> SparkSession:
    """The parent's session, seen from this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    context = SparkContext(jsc=java_context, gateway=gateway, conf=SparkConf(_jconf=java_context.getConf()))
    java_session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, java_session)


def expire_lease(folder: Path, pipeline: str) -> None:
    """End the pipeline's lease in the store of the project in `folder`: SQLite, files or PostgreSQL.

    Its epoch goes up: a process that held the lease and is alive after all cannot publish any more (G4).
    """
    address = load_project(folder).progress_levels[-1].reveal()
    scheme, _, rest = address.partition(":")
    if scheme.startswith("postgres"):
        _expire_in_postgres(address, pipeline)
        return
    path = folder / rest.removeprefix("///" if scheme == "sqlite" else "//")
    store = (SqliteProgress if scheme == "sqlite" else FileProgress)(path, clock=_tomorrow)
    store.release(store.acquire(pipeline, "the test", ttl_seconds=60))
    store.close()


def _tomorrow() -> dt.datetime:
    return wall_clock() + dt.timedelta(days=1)


def _expire_in_postgres(address: str, pipeline: str) -> None:
    import psycopg

    # Leases go by the server's clock, which no test can set.
    with psycopg.connect(address) as connection:
        connection.execute(
            "UPDATE headwater_progress SET lease_expires_at = now() - interval '1 second' WHERE pipeline = %s",
            [pipeline],
        )
