"""Tables and their namespaces are made once, however many make them at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.sinks.iceberg.catalog.catalog import create_table
from headwater.sinks.iceberg.catalog.table import table_for
from tests.sinks.iceberg.lake_table import LakeTable, orders

pytestmark = pytest.mark.spark

_ROUNDS, _WRITERS = 30, 3


def test_writers_that_make_a_namespace_and_a_table_at_once_all_get_the_same_table(lands: LakeTable) -> None:
    together = threading.Barrier(_WRITERS, timeout=60)
    schema = orders([1]).schema

    def make(_: int) -> list[str]:
        created = []
        for number in range(_ROUNDS):
            name = table_for(f"{lands.namespace}_{number}.orders", "orders")
            together.wait()
            table = create_table(lands.spark, name, schema, key=("id",), owner=("p", "s", "o"))
            created.append(str(table.java.uuid()))
        return created

    with ThreadPoolExecutor(_WRITERS) as writers:
        first, *others = list(writers.map(make, range(_WRITERS)))
    assert len(set(first)) == _ROUNDS
    assert all(other == first for other in others)
