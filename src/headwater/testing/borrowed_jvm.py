"""A Spark session in a child process that borrows its parent's JVM.

Crash tests kill real processes by the dozen. A JVM of its own would cost each of them fifteen seconds; the
JVM is not what is being killed, so the children share one. The child must not stop the session.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def lend(spark: SparkSession) -> Mapping[str, str]:
    """The environment that lets a child process borrow this session's JVM."""
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way to its gateway
    if gateway is None:
        raise ValueError("the session has no JVM of its own to lend")
    parameters = gateway.gateway_parameters
    return {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token),
        "PYSPARK_PIN_THREAD": os.environ.get("PYSPARK_PIN_THREAD", "true"),
    }


def borrow() -> SparkSession:
    """The parent's session, seen from this process."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    jvm = gateway.jvm
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    context = SparkContext(jsc=java_context, gateway=gateway, conf=SparkConf(_jconf=java_context.getConf()))
    java_session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return SparkSession(context, java_session)
