"""The console sink shows rows honestly, in bounded space, and without a JVM where it can."""

import datetime as dt
import decimal
import io
import json
import subprocess
import sys

import pyarrow as pa
import pytest

from headwater.config.sinks.console import ConsoleSinkSettings
from headwater.model.errors import LeaseLost
from headwater.sinks.console import ConsoleSink, cell, printable
from headwater.testing.memory_rows import attempt_at, memory_rows, spark_rows, table_of, window_up_to

WINDOW = window_up_to(10)


def printed(rows, settings=None, **attempt) -> tuple[str, int]:
    out = io.StringIO()
    landing = ConsoleSink(settings or ConsoleSinkSettings(), "1:console", out).land(attempt_at(WINDOW, **attempt), rows)
    return out.getvalue(), landing.rows


def test_rows_are_shown_as_a_table_under_the_name_of_pipeline_stream_and_window():
    text, count = printed(memory_rows("public.orders", (table_of([1, 2]),)))
    assert text == (
        "shop · public.orders · 2 rows, up to id = 10\n"
        "id  name    at\n"
        "──  ──────  ───────────────────────────\n"
        " 1  name 1  2023-11-14T22:13:20.000001Z\n"
        " 2  name 2  2023-11-14T22:13:20.000002Z\n"
    )
    assert count == 2


def test_all_rows_are_counted_and_only_the_first_are_shown():
    counts = []
    text, count = printed(
        memory_rows("s", (table_of(range(15)), table_of(range(15, 1015)))),
        ConsoleSinkSettings(limit=3),
        progress=counts.append,
    )
    assert count == 1015 == sum(counts)
    assert text.endswith("2  name 2  2023-11-14T22:13:20.000002Z\n… and 1,012 more\n")
    assert len(text.splitlines()) == 3 + 3 + 1


def test_a_limit_of_zero_shows_the_columns_and_the_number():
    text, _ = printed(memory_rows("s", (table_of([1]),)), ConsoleSinkSettings(limit=0))
    assert text.splitlines()[1].split() == ["id", "name", "at"]
    assert text.endswith("… and 1 more\n")


def test_json_lines_keep_values_exactly():
    table = pa.table(
        {
            "price": pa.array([decimal.Decimal("12.50")], pa.decimal128(12, 2)),
            "at": pa.array([dt.datetime(2026, 1, 31, 12, 0, 0, 7)], pa.timestamp("us")),  # noqa: DTZ001
            "raw": pa.array([b"\x00\xff"]),
            "ratio": pa.array([float("nan")]),
            "none": pa.array([None], pa.string()),
        }
    )
    text, _ = printed(memory_rows("s", (table,)), ConsoleSinkSettings(format="json"))
    assert json.loads(text) == {
        "price": "12.50", "at": "2026-01-31T12:00:00.000007", "raw": "AP8=", "ratio": "nan", "none": None,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_row_cannot_take_over_the_terminal(form):
    hostile = "\x1b[2J\x1b]0;owned\x07\rfake\n2 rows landed\u202e\u2028\x9b31m"
    table = pa.table({hostile: [hostile]})
    text, _ = printed(memory_rows(hostile, (table,)), ConsoleSinkSettings(format=form))
    assert set(text) & set("\x1b\x07\r\u202e\u2028\x9b") == set()
    assert len(text.splitlines()) == {"table": 4, "json": 1}[form]


def test_values_are_readable():
    assert cell(None) == "NULL"
    assert cell("NULL") == '"NULL"'
    assert cell(value=True) == "true"
    assert cell("x" * 10_000) == "x" * 39 + "…"
    assert cell("漢" * 100) == "漢" * 19 + " …"
    assert cell({"a": [1, None]}) == '{"a": [1, null]}'
    assert printable("tab\tand ünïcode ✓") == "tab\\tand ünïcode ✓"


def test_it_cannot_tell_what_it_printed():
    assert ConsoleSink(ConsoleSinkSettings(), "1:console", io.StringIO()).landed(attempt_at(WINDOW), "s") is None


def test_a_process_that_lost_its_lease_prints_nothing():
    def lost() -> None:
        raise LeaseLost("taken over")

    out = io.StringIO()
    with pytest.raises(LeaseLost):
        ConsoleSink(ConsoleSinkSettings(), "1:console", out).land(
            attempt_at(WINDOW, ensure_lease=lost), memory_rows("s", (table_of([1]),))
        )
    assert out.getvalue() == ""


def test_rows_that_arrow_can_read_never_import_spark():
    code = (
        "import sys, io\n"
        "from headwater.config.sinks.console import ConsoleSinkSettings as S\n"
        "from headwater.sinks.console import ConsoleSink\n"
        "from headwater.testing.memory_rows import *\n"
        "ConsoleSink(S(), 'c', io.StringIO()).land(attempt_at(window_up_to(1)), memory_rows('s', (table_of([1]),)))\n"
        "assert not [m for m in sys.modules if m.startswith('pyspark')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.spark
def test_rows_that_only_spark_can_read_are_counted_in_one_job(spark):
    text, count = printed(
        spark_rows(memory_rows("s", (table_of(range(100)),))), ConsoleSinkSettings(limit=2), spark=lambda: spark
    )
    assert count == 100
    assert text.splitlines()[3:] == [
        " 0  name 0  2023-11-14T22:13:20.000000Z",
        " 1  name 1  2023-11-14T22:13:20.000001Z",
        "… and 98 more",
    ]
