"""Fixtures of the Iceberg sink's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sinks.iceberg.lake_table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lands(spark: SparkSession, namespace: str) -> LakeTable:
    return LakeTable(spark, namespace)
