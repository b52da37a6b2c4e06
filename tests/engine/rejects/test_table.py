"""G8: what cannot be kept is set aside with its reason, before the rows it stood among are published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.config.pipeline import PipelineSettings
from headwater.engine.cycle import run_cycle
from headwater.engine.operations.replay import Replayed, replay
from headwater.engine.rejects.table import StoredReject
from headwater.engine.result import CycleResult
from headwater.model.errors import SinkUnreachable, ValueNotKept
from headwater.model.faults import Faults
from headwater.model.rows import MemorySplit, OnReject, Reject, Rows, Split
from headwater.sinks import tasks as over_rows

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class PickySplit:
    """Sets aside every row whose note begins with `bad`."""

    split: Split
    stream: str

    @property
    def rows(self) -> int | None:
        return self.split.rows

    def read(self, on_reject: OnReject | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.split.read():
            bad = pc.starts_with(batch.column("note"), "bad")
            for row in batch.filter(bad).to_pylist():
                if on_reject is None:
                    raise ValueNotKept(f"row {row['id']}: a bad note")
                on_reject(Reject(self.stream, {"row": row["id"]}, "a bad note", row["note"].encode()))
            yield batch.filter(pc.invert(bad))


class PickySource:
    def __init__(self, source) -> None:
        self._source = source

    def __getattr__(self, name: str):
        return getattr(self._source, name)

    @contextmanager
    def replay(self, rejects: Sequence[Reject], _mark: object):
        """As if notes had been mended since, but for the hopeless."""
        notes = [text if "hopeless" in (text := reject.payload.decode()) else f"mended {text}" for reject in rejects]
        ids = [reject.location["row"] for reject in rejects]
        table = pa.table({"id": pa.array(ids, pa.int32()), "note": notes})
        split = PickySplit(MemorySplit.of(table), rejects[0].stream)
        yield [Rows(rejects[0].stream, table.schema, splits=(split,))]

    @contextmanager
    def read(self, window):
        with self._source.read(window) as streams:
            yield [replace(rows, splits=tuple(PickySplit(x, rows.stream) for x in rows.splits)) for rows in streams]


@dataclass
class Picky:
    """A pipeline over a PostgreSQL table, whose source sets rows aside."""

    database: str
    folder: Path
    table: str
    spark: object

    def write(self, *sinks: str, more: str = "") -> None:
        (self.folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        lines = "\n".join(f"  - {sink}" for sink in sinks or (f"iceberg: {{table: {self.table}}}",))
        (self.folder / "notes.yaml").write_text(f"""
pipeline: notes
{more}
source: {{sql: {{url: "{self.database}", table: notes, cursor: id}}}}
sinks:
{lines}
""")

    def insert(self, *notes: str) -> None:
        with psycopg.connect(self.database) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS notes (id int GENERATED ALWAYS AS IDENTITY, note text)")
            connection.cursor().executemany("INSERT INTO notes (note) VALUES (%s)", [(note,) for note in notes])

    def run(self, faults: Faults | None = None) -> CycleResult:
        with Project(load_project(self.folder), self.folder, spark=self.spark, faults=faults) as project:
            opened = project.pipelines([self.folder / "notes.yaml"])[0].open()
            return run_cycle(replace(opened, source=PickySource(opened.source)))

    def stored(self) -> Sequence[StoredReject]:
        with Project(load_project(self.folder), self.folder, spark=self.spark) as project:
            return project.pipelines([self.folder / "notes.yaml"])[0].rejects()

    def replay(self, faults: Faults | None = None) -> Replayed:
        with Project(load_project(self.folder), self.folder, spark=self.spark, faults=faults) as project:
            pipeline = project.pipelines([self.folder / "notes.yaml"])[0]
            opened = pipeline.open()
            return replay(replace(opened, source=PickySource(opened.source)), pipeline.rejects())

    def landed(self) -> list[str]:
        return sorted(row.note for row in self.spark.sql(f"SELECT note FROM {self.table}").collect())

    def rejected(self, table: str | None = None) -> list[tuple]:
        rows = self.spark.sql(f"SELECT row, reason, payload FROM {table or self.table + '__rejects'}").collect()
        return sorted((row.row, row.reason, bytes(row.payload)) for row in rows)


@pytest.fixture
def picky(database, tmp_path, namespace, spark) -> Picky:
    return Picky(database, tmp_path, f"{namespace}.notes", spark)


@pytest.fixture(params=["in this process", "in Spark's workers"])
def anywhere(request, monkeypatch) -> None:
    if request.param == "in Spark's workers":
        monkeypatch.setattr(over_rows, "SMALL_WINDOW", -1)


def test_the_rest_lands_and_rejects_have_a_table_of_their_own(picky, anywhere):
    picky.write()
    picky.insert("a", "bad 1", "b", "bad 2")
    result = picky.run()
    assert result.to_json()["rows"] == {"read": 4, "landed": 2, "rejected": 2}
    assert [sink["sink"] for sink in result.to_json()["sinks"]] == ["1:iceberg"]
    assert picky.landed() == ["a", "b"]
    assert picky.rejected() == [(2, "a bad note", b"bad 1"), (4, "a bad note", b"bad 2")]
    picky.insert("bad 3", "c")
    assert picky.run().rejected == 1
    assert len(picky.rejected()) == 3
    assert picky.run().outcome == "nothing new"


def test_a_window_of_nothing_but_rejects_is_done(picky, anywhere):
    picky.write()
    picky.insert("bad 1")
    assert picky.run().to_json()["rows"] == {"read": 1, "landed": 0, "rejected": 1}
    assert picky.rejected() == [(1, "a bad note", b"bad 1")]


def test_every_sink_reads_and_each_reject_is_kept_once(picky, anywhere, namespace):
    picky.write("files: {path: ./files}", f"iceberg: {{table: {picky.table}}}", f"iceberg: {{table: {namespace}.copy}}")
    picky.insert("a", "bad 1", "bad 2")
    assert picky.run().rejected == 2
    assert len(picky.rejected()) == 2


def test_rejects_of_a_transformed_stream_are_found(picky):
    picky.write(more="transform: SELECT id, upper(note) AS note FROM rows")
    picky.insert("a", "bad 1")
    assert picky.run().rejected == 1
    assert picky.landed() == ["A"]


def test_more_than_the_pipeline_bears_stop_it_and_nothing_is_published(picky, anywhere):
    picky.write(more="max_rejects: 2")
    picky.insert("a", "bad 1", "bad 2", "bad 3")
    result = picky.run()
    assert result.error.code == "too-many-rejects"
    assert "more than 2 rows" in result.error.message
    assert "a bad note" in result.error.message
    assert not picky.spark.catalog.tableExists(picky.table) or picky.landed() == []
    picky.write(more="max_rejects: 3")
    again = picky.run()
    assert again.outcome == "landed", again.error
    assert again.recovered
    assert (picky.landed(), len(picky.rejected())) == (["a"], 3)


def test_none_is_borne_when_none_may_be(picky):
    picky.write(more="max_rejects: 0")
    picky.insert("a", "bad 1")
    assert picky.run().error.code == "too-many-rejects"


class FailAt:
    """Lets the lake fail when a point is passed for the nth time."""

    def __init__(self, point: str, number: int) -> None:
        self._point, self._left = point, number

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                raise SinkUnreachable(f"rehearsed at {point}")


@pytest.mark.parametrize(
    ("point", "number"),
    [
        ("land.before", 1),
        *((point, n) for point in ("land.written", "land.published") for n in (1, 2)),
        ("advance.before", 1),
    ],
)
def test_a_failure_at_any_point_leaves_rejects_and_rows_together(picky, point, number):
    """Rejects land inside the landing of the rows: each point is passed twice, first by the rejects."""
    picky.write()
    picky.insert("a", "bad 1", "b")
    assert picky.run(FailAt(point, number)).error.code == "sink-unreachable"
    again = picky.run()
    assert again.outcome == "landed", again.error
    assert (picky.landed(), len(picky.rejected())) == (["a", "b"], 1)


def test_rejects_can_be_looked_at(picky):
    picky.write()
    assert picky.stored() == []
    picky.insert("a", "bad 1", "bad 2")
    picky.run()
    assert [(one.reject.location, one.reject.payload) for one in picky.stored()] == [
        ({"row": 2}, b"bad 1"),
        ({"row": 3}, b"bad 2"),
    ]
    picky.write(f"iceberg: {{table: {picky.table}}}", more="rejects: lake.nowhere.{stream}")
    assert picky.stored() == []


def test_a_replay_lands_what_can_be_kept_now_and_leaves_the_rest(picky):
    picky.write()
    picky.insert("a", "bad 1", "bad, hopeless", "bad 2")
    picky.run()
    assert picky.replay() == Replayed(tried=3, landed=2, left=1)
    assert picky.landed() == ["a", "mended bad 1", "mended bad 2"]
    assert [one.reject.payload for one in picky.stored()] == [b"bad, hopeless"]
    assert picky.run().outcome == "nothing new"


@pytest.mark.parametrize("point", ["land.written", "land.published"])
def test_a_replay_that_broke_off_is_finished_by_another(picky, point):
    picky.write()
    picky.insert("a", "bad 1", "bad 2")
    picky.run()
    with pytest.raises(SinkUnreachable):
        picky.replay(FailAt(point, 1))
    assert picky.replay().left == 0
    assert picky.landed() == ["a", "mended bad 1", "mended bad 2"]
    assert picky.stored() == []


def test_a_pipeline_without_a_lake_keeps_rejects_in_the_lake_all_the_same(picky, namespace):
    table = f"{namespace}.aside"
    picky.write("files: {path: ./files, format: json}", more=f"rejects: {table}")
    picky.insert("a", "bad 1")
    assert picky.run().rejected == 1
    assert picky.rejected(table) == [(2, "a bad note", b"bad 1")]
    files = [path for path in (picky.folder / "files").rglob("*.json*") if not path.name.startswith((".", "_"))]
    assert [json.loads(line)["note"] for path in files for line in path.read_text().splitlines()] == ["a"]


def where_rejects_land(sinks: Sequence[dict], **more: object) -> str:
    source = {"sql": {"url": "sqlite:///a.db", "table": "t", "cursor": "id"}}
    return PipelineSettings.model_validate(
        {"pipeline": "my shop", "source": source, "sinks": sinks, **more}
    ).rejects_table


def test_where_rejects_land_follows_the_sinks():
    assert (
        where_rejects_land([{"console": {}}, {"iceberg": {"table": "lake.raw.{stream}"}}])
        == "lake.raw.{stream}__rejects"
    )
    assert where_rejects_land([{"console": {}}]) == "lake.rejects.my_shop_{stream}__rejects"
    assert where_rejects_land([{"console": {}}], rejects="lake.ops.{stream}") == "lake.ops.{stream}"
    with pytest.raises(ValueError, match="not a full table name"):
        where_rejects_land([{"console": {}}], rejects="aside")
