"""Streams that land side by side: the first use of a catalog may come from any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headwater.sinks.iceberg.catalog.catalog import find_table
from headwater.sinks.iceberg.catalog.table import table_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_thread_of_its_own_finds_a_catalog_that_nobody_has_used(spark: SparkSession):
    own = spark.newSession()  # has loaded no catalog yet, and is no thread's own
    with ThreadPoolExecutor(2) as threads:
        tables = threads.map(lambda name: find_table(own, table_for(f"lake.nowhere.{name}", "x")), ["a", "b"])
        assert list(tables) == [None, None]
