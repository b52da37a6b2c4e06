"""`headwater sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headwater.cli.commands.sql import run_query
from headwater.model.errors import InputError
from tests.support.command_line import Headwater

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_TYPE = """
SELECT 1 AS n, CAST('1.50' AS DECIMAL(12,2)) AS amount, DATE'2026-01-31' AS day,
       TIMESTAMP'2026-01-31 12:00:00.000001Z' AS at, TIMESTAMP_NTZ'2026-01-31 12:00:00' AS clock,
       'é' AS word, true AS yes, CAST(NULL AS STRING) AS nothing, X'00ff' AS raw,
       named_struct('a', DATE'2026-01-01') AS record, array(1, 2) AS list, double('NaN') AS nan
"""


@pytest.mark.spark
def test_values_come_out_exactly(spark: SparkSession) -> None:
    columns, (row,) = run_query(spark, EVERY_TYPE, None)
    assert dict(zip(columns, row, strict=True)) == {
        "n": 1,
        "amount": "1.50",
        "day": "2026-01-31",
        "at": "2026-01-31T12:00:00.000001+00:00",
        "clock": "2026-01-31T12:00:00",
        "word": "é",
        "yes": True,
        "nothing": None,
        "raw": "AP8=",
        "record": {"a": "2026-01-01"},
        "list": [1, 2],
        "nan": "nan",
    }


@pytest.mark.spark
def test_a_mistake_in_the_query_is_the_user_s_and_shows_no_plan(spark: SparkSession) -> None:
    for query in ("SELEC 1", "SELECT * FROM lake.no.such", "SELECT nothing FROM range(3)"):
        with pytest.raises(InputError) as raised:
            run_query(spark, query, 10)
        assert raised.value.exit_code == 2
        assert "JVM" not in raised.value.message
        assert "\n" not in raised.value.message
    assert len(run_query(spark, "SELECT id FROM range(100)", 10)[1]) == 10
    assert run_query(spark, "SHOW NAMESPACES IN lake", 10)[0] == ["namespace"]


@pytest.mark.spark
def test_a_lake_answers_in_a_process_of_its_own(process: Headwater) -> None:
    done = process("sql", "SELECT id, id * 2 AS twice FROM range(2)", "--json", "--set", "spark.memory=512m")
    assert done.code == 0, done.err
    assert done.json == [{"id": 0, "twice": 0}, {"id": 1, "twice": 2}]
