"""A transform sees `rows`, stays lazy, and fails in one sentence."""

import sqlite3
import sys
import threading
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.config.pipeline import PythonTransformSettings
from headwater.engine.result import CycleResult
from headwater.engine.spark.transform import apply_transform, load_function
from headwater.model.errors import TransformFailed
from headwater.model.faults import NoFaults, RehearsedFault
from headwater.model.rows import Objects
from headwater.sinks.iceberg.merge.replace_object import object_column
from headwater.testing.memory_rows import memory_rows, table_of

ROWS = memory_rows("orders", (table_of([1, 2, 3]),), key=("id",), order=("at",))


def module(folder, text: str, name: str = "shaping.py"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def python(reference: str) -> PythonTransformSettings:
    return PythonTransformSettings(python=reference)


def test_a_module_is_loaded_once_and_leaves_no_trace(tmp_path):
    module(tmp_path, "import helper_beside\ndef f(df): return helper_beside.NAME")
    module(tmp_path, "NAME = 'beside'", "helper_beside.py")
    path, modules = list(sys.path), set(sys.modules)
    function = load_function("shaping:f", tmp_path)
    assert function(None) == "beside"
    assert load_function("shaping:f", tmp_path) is function
    assert sys.path == path
    assert set(sys.modules) - modules == set()


def test_two_folders_may_have_modules_of_one_name(tmp_path):
    for name in ("one", "two"):
        module(tmp_path / name, f"def f(df): return {name!r}")
    assert [load_function("shaping:f", tmp_path / name)(None) for name in ("one", "two")] == ["one", "two"]


def test_a_module_may_have_the_name_of_one_that_is_loaded_already(tmp_path):
    import json

    module(tmp_path, "def f(df): return 'mine'", "json.py")
    assert load_function("json:f", tmp_path)(None) == "mine"
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("text", "reference", "says"),
    [
        ("", "absent_module:f", "ModuleNotFoundError: No module named 'absent_module'"),
        ("def g(df): ...", "shaping:f", "the module shaping has no function f"),
        ("f = 3", "shaping:f", "the module shaping has no function f"),
        ("1 / 0", "shaping:f", "ZeroDivisionError"),
        ("def f(:", "shaping:f", "SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(tmp_path, text, reference, says):
    with pytest.raises(TransformFailed) as caught:
        load_function(reference, module(tmp_path, text))
    assert says in caught.value.message
    assert caught.value.hint


@pytest.mark.spark
class TestOnSpark:
    @pytest.fixture
    def over(self, spark, tmp_path):
        def transformed(transform, rows=ROWS):
            return apply_transform(rows, transform, tmp_path, lambda: spark)

        return transformed

    def test_sql_reads_the_rows_under_the_name_rows(self, over, spark):
        rows = over("SELECT id, upper(name) AS loud FROM rows WHERE id > 1 -- and a comment")
        assert [tuple(row) for row in rows.dataframe(spark).orderBy("id").collect()] == [(2, "NAME 2"), (3, "NAME 3")]
        assert rows.schema.names == ["id", "loud"]
        assert rows.splits is None

    def test_sql_may_name_its_own_parts_and_end_with_a_semicolon(self, over, spark):
        rows = over("WITH big AS (SELECT * FROM rows WHERE id > 2)\nSELECT b.id FROM big b JOIN rows r USING (id);\n")
        assert [tuple(row) for row in rows.dataframe(spark).collect()] == [(3,)]

    def test_the_schema_is_known_without_a_job_and_keeps_exact_types(self, over, spark):
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
        schema = over("SELECT id, at, CAST(id AS decimal(12,2)) AS price FROM rows").schema
        assert schema.field("at").type == pa.timestamp("us", tz="UTC")
        assert schema.field("price").type == pa.decimal128(12, 2)
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs

    def test_key_and_order_survive_with_their_columns(self, over):
        assert (over("SELECT * FROM rows").key, over("SELECT * FROM rows").order) == (("id",), ("at",))
        assert (over("SELECT name FROM rows").key, over("SELECT id FROM rows").order) == ((), ())

    def test_objects_that_are_replaced_are_passed_on_with_their_column(self, over):
        rows = memory_rows("objects", (table_of([1]),), objects=Objects("name", ("a",), "s3://b/"))
        narrowed = over("SELECT name, id FROM rows", rows)
        assert narrowed.objects == Objects("name", ("a",), "s3://b/")
        assert over("SELECT id FROM rows").objects is None
        for without in ("SELECT id FROM rows", "SELECT id, name AS source FROM rows"):
            with pytest.raises(TransformFailed, match="leaves out or renames 'name'") as caught:
                object_column(over(without, rows), "objects")
            assert "select name too" in caught.value.hint

    def test_a_window_that_has_landed_starts_no_session_for_its_transform(self, spark, tmp_path):
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            database.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
        (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        path = tmp_path / "orders.yaml"
        path.write_text(
            'pipeline: orders\nsource: {sql: {url: "sqlite:///shop.db", table: orders, cursor: id}}\n'
            "transform: SELECT id * 10 AS id FROM rows\nsinks: [{files: {path: out}}]\n"
        )

        def run(session, faults) -> CycleResult:
            with Project(load_project(tmp_path), tmp_path, spark=session, faults=faults) as project:
                return project.pipelines([path])[0].run_once()

        failed = run(spark, RehearsedFault("advance.before", "store", 1))
        assert (failed.outcome, failed.error.code) == ("failed", "store-unreachable")
        recovered = run(object(), NoFaults())  # no session: to use it is an error
        assert recovered.outcome == "landed", recovered.error
        files = [file for file in (tmp_path / "out").rglob("*.parquet") if not file.name.startswith(".")]
        assert sorted(row["id"] for file in files for row in pq.read_table(file).to_pylist()) == [10, 20]

    def test_pipelines_in_several_threads_never_see_each_others_rows(self, spark, tmp_path):
        seen: dict[int, list[int]] = {}

        def work(number: int) -> None:
            rows = memory_rows("s", (table_of([number] * 3),))
            frame = apply_transform(rows, "SELECT id FROM rows", tmp_path, lambda: spark).dataframe(spark)
            seen[number] = [row.id for row in frame.collect()]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == {number: [number] * 3 for number in range(4)}
        assert not [t.name for t in spark.catalog.listTables() if t.isTemporary]

    @pytest.mark.parametrize(
        ("sql", "says"),
        [
            ("SELEC * FROM rows", "PARSE_SYNTAX_ERROR"),
            ("SELECT nope FROM rows", "`nope`"),
            ("SELECT * FROM elsewhere", "elsewhere"),
            ("DROP TABLE rows", "PARSE_SYNTAX_ERROR"),
            ("", "PARSE_SYNTAX_ERROR"),
        ],
    )
    def test_a_query_that_spark_refuses_is_one_sentence(self, over, sql, says):
        with pytest.raises(TransformFailed) as caught:
            _ = over(sql).schema
        assert says in caught.value.message
        assert "\n" not in caught.value.message
        assert "headwater_rows" not in str(caught.value)
        assert caught.value.hint == "rows has the columns id, name, at"

    def test_a_python_function_gets_and_gives_a_dataframe_and_its_udf_runs_on_workers(self, over, spark, tmp_path):
        module(tmp_path, "FACTOR = 10", "factors.py")
        module(
            tmp_path,
            "from pyspark.sql.functions import udf, col\nimport factors\n"
            "def times(x): return x * factors.FACTOR\n"
            "def f(df): return df.select(col('id'), udf(times, 'long')('id').alias('ten'))\n",
        )
        rows = over(python("shaping:f"))
        assert sorted(tuple(row) for row in rows.dataframe(spark).collect()) == [(1, 10), (2, 20), (3, 30)]
        assert rows.key == ("id",)

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ("raise ValueError('first\\nsecond')", "ValueError: first"),
            ("return None", "returned NoneType for orders, not a DataFrame"),
            ("return df.select('nope')", "`nope`"),
        ],
    )
    def test_a_function_that_fails_is_one_sentence(self, over, tmp_path, body, says):
        module(tmp_path, f"def f(df): {body}")
        with pytest.raises(TransformFailed) as caught:
            _ = over(python("shaping:f")).schema
        assert says in caught.value.message
        assert "\n" not in caught.value.message

    def test_the_function_is_called_once_for_several_sinks(self, over, spark, tmp_path):
        module(
            tmp_path, "calls = []\ndef f(df):\n    calls.append(1)\n    return df.withColumn('n', df.id * len(calls))"
        )
        rows = over(python("shaping:f"))
        assert rows.dataframe(spark) is rows.dataframe(spark)
        assert rows.schema.names[-1] == "n"
