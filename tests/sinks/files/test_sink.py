"""The files sink publishes a window once, whole, under any crash, race and name."""

import csv
import datetime as dt
import decimal
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.config.sinks.files import FilesSinkSettings
from headwater.model.errors import (
    LeaseLost,
    PublishConflict,
    SchemaRefused,
    SettingsError,
    SinkUnreachable,
    ValueNotKept,
)
from headwater.model.rows import Rows
from headwater.sinks.files import FilesSink
from headwater.sinks.files.targets import RenameTarget, folder_name, storage_errors
from headwater.sinks.files.writer import open_writer
from headwater.testing.memory_rows import TrickleSplit, attempt_at, memory_rows, spark_rows, table_of, window_up_to

WINDOW = window_up_to(10)
MODES = ["rename", "manifest"]


def files_sink(folder: Path, **settings) -> FilesSink:
    return FilesSink(FilesSinkSettings(path="out", **settings), "1:files", folder)


def readable(folder: Path, stream: str = "orders") -> list[Path]:
    """The files that a reader counts: whole window folders, and what manifests name."""
    root = folder / "out" / folder_name(stream)
    files = sorted(root.glob("window=*/part-*"))
    for manifest in sorted(root.glob("_manifests/*.json")):
        files += [root / "data" / part["name"] for part in json.loads(manifest.read_bytes())["files"]]
    return files


def ids(folder: Path, stream: str = "orders") -> list[int]:
    return sorted(i for path in readable(folder, stream) for i in pq.ParquetFile(path).read()["id"].to_pylist())


def everything_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("publish", MODES)
def test_a_window_lands_as_parquet_with_its_exact_types(tmp_path, publish):
    reported = []
    landing = files_sink(tmp_path, publish=publish).land(
        attempt_at(WINDOW, progress=reported.append), memory_rows("orders", (table_of([1, 2]), table_of([3])))
    )
    assert (landing.rows, sum(reported), ids(tmp_path)) == (3, 3, [1, 2, 3])
    assert pq.ParquetFile(readable(tmp_path)[0]).schema_arrow.equals(table_of([]).schema)
    assert landing.window == WINDOW.id


def test_the_default_layout_is_one_folder_per_window(tmp_path):
    sink = files_sink(tmp_path)
    for end in (10, 20):
        sink.land(attempt_at(window_up_to(end)), memory_rows("public.orders", (table_of([end]),)))
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    windows = sorted(window_up_to(end).id for end in (10, 20))
    assert files == [f"out/public.orders/window={window}/part-00000.parquet" for window in windows]


def test_a_stream_in_the_path_stands_where_it_is_written(tmp_path):
    FilesSink(FilesSinkSettings(path="lake/{stream}/raw"), "1:files", tmp_path).land(
        attempt_at(WINDOW), memory_rows("orders", (table_of([1]),))
    )
    assert (tmp_path / f"lake/orders/raw/window={WINDOW.id}/part-00000.parquet").exists()


@pytest.mark.parametrize("publish", MODES)
def test_landing_again_changes_nothing(tmp_path, publish):
    sink, rows = files_sink(tmp_path, publish=publish), memory_rows("orders", (table_of([1, 2]),))
    assert sink.landed(attempt_at(WINDOW), "orders") is None
    sink.land(attempt_at(WINDOW), rows)
    before = everything_in(tmp_path)
    again = sink.land(attempt_at(WINDOW, run="run-2", epoch=2), rows)
    proven = sink.landed(attempt_at(WINDOW, run="run-3"), "orders")
    assert again.rows == proven.rows == 2
    assert everything_in(tmp_path) == before
    assert ids(tmp_path) == [1, 2]


CRASH = """
import sys
from pathlib import Path
from headwater.config.sinks.files import FilesSinkSettings as Settings
from headwater.model.faults import RehearsedFault
from headwater.sinks.files import FilesSink
from headwater.testing.memory_rows import *
folder, publish, point = sys.argv[1:]
FilesSink(Settings(path="out", publish=publish), "1:files", Path(folder)).land(
    attempt_at(window_up_to(10), faults=RehearsedFault(point, "kill", 1)), memory_rows("orders", (table_of([1, 2]),)))
"""


@pytest.mark.parametrize("point", ["land.written", "land.published"])
@pytest.mark.parametrize("publish", MODES)
def test_a_kill_around_the_publish_is_repaired_by_landing_again(tmp_path, publish, point):
    done = subprocess.run([sys.executable, "-c", CRASH, str(tmp_path), publish, point], check=False)
    assert done.returncode == -signal.SIGKILL
    sink = files_sink(tmp_path, publish=publish)
    attempt = attempt_at(WINDOW, run="run-2", epoch=2)
    assert (sink.landed(attempt, "orders") is not None) == (point == "land.published")
    assert ids(tmp_path) == ([1, 2] if point == "land.published" else [])
    sink.land(attempt, memory_rows("orders", (table_of([1, 2]),)))
    assert ids(tmp_path) == [1, 2]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1, "leftovers of the killed attempt are gone"
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".headwater"]


class Meanwhile:
    """Lets another process act at a fault point."""

    def __init__(self, point, act) -> None:
        self._point, self._act = point, act

    def reach(self, point: str) -> None:
        if point == self._point:
            self._act()


@pytest.mark.parametrize("publish", MODES)
def test_a_writer_that_slept_through_its_lease_publishes_nothing(tmp_path, publish):
    rows, sink = memory_rows("orders", (table_of([1, 2]),)), files_sink(tmp_path, publish=publish)

    def successor() -> None:
        sink.land(attempt_at(WINDOW, run="run-2", epoch=2), rows)

    def lost() -> None:
        raise LeaseLost("shop: taken over by epoch 2")

    stale = attempt_at(WINDOW, faults=Meanwhile("land.written", successor), ensure_lease=lost)
    with pytest.raises(LeaseLost):
        files_sink(tmp_path, publish=publish).land(stale, rows)
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize("publish", MODES)
def test_a_writer_overtaken_after_its_last_look_at_the_lease_doubles_nothing(tmp_path, publish):
    rows = memory_rows("orders", (table_of([1, 2]),))
    # The successor works inside the very last check: no later question could have told the stale writer.
    stale = attempt_at(
        WINDOW, ensure_lease=lambda: files_sink(tmp_path, publish=publish).land(attempt_at(WINDOW, epoch=2), rows)
    )
    expected = pytest.raises(LeaseLost, match="a newer lease removed") if publish == "rename" else nullcontext()
    with expected:
        files_sink(tmp_path, publish=publish).land(stale, rows)
    assert ids(tmp_path) == [1, 2]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


@pytest.mark.parametrize("publish", MODES)
def test_of_writers_that_race_for_a_window_one_wins_and_nothing_is_lost(tmp_path, publish):
    for number in range(25):
        folder = tmp_path / str(number)
        barrier, failed = threading.Barrier(4), []

        def race(run: int, folder=folder, barrier=barrier, failed=failed) -> None:
            barrier.wait()
            try:
                files_sink(folder, publish=publish).land(
                    attempt_at(WINDOW, run=f"run-{run}", epoch=run), memory_rows("orders", (table_of([1, 2, 3]),))
                )
            except (LeaseLost, SinkUnreachable) as error:
                failed.append(error)

        threads = [threading.Thread(target=race, args=(run,)) for run in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whoever is left over lands once more, as a recovery does; then the window is there exactly once.
        files_sink(folder, publish=publish).land(
            attempt_at(WINDOW, run="run-9", epoch=9), memory_rows("orders", (table_of([1, 2, 3]),))
        )
        assert ids(folder) == [1, 2, 3], failed


def test_a_folder_that_is_published_while_leftovers_are_removed_keeps_all_its_files(tmp_path):
    for number in range(20):
        target = RenameTarget(tmp_path / str(number), "orders")
        stale, published = target.stage(attempt_at(WINDOW)).folder, tmp_path / str(number) / "published"
        for file in range(200):
            (stale / f"part-{file}").touch()
        barrier = threading.Barrier(2)

        def publish(stale=stale, published=published, barrier=barrier) -> None:
            barrier.wait()
            with suppress(FileNotFoundError):
                stale.rename(published)

        writer = threading.Thread(target=publish)
        writer.start()
        barrier.wait()
        target.stage(attempt_at(WINDOW, run="run-2", epoch=2))
        writer.join()
        assert not published.exists() or len(list(published.iterdir())) == 200


@pytest.mark.parametrize(
    "stream",
    ["../../etc/passwd", "/absolute", "a/b", "a:b", "..", ".", ".hidden", "_skipped", "naïve ✓", "x" * 400, "a\x00b", "%2F", "\ud800"],
)  # fmt: skip
def test_no_stream_name_leaves_the_folder_or_hides_in_it(tmp_path, stream):
    folder = tmp_path / "inner"
    files_sink(folder).land(attempt_at(WINDOW), memory_rows(stream, (table_of([1]),)))
    assert {path.name for path in tmp_path.iterdir()} == {"inner"}
    assert [path.parent for path in (folder / "out").iterdir()] == [folder / "out"]
    assert ids(folder, stream) == [1]
    assert not folder_name(stream).startswith((".", "_"))


def test_names_that_differ_have_folders_that_differ():
    names = ["a/b", "a:b", "a%2Fb", "A/B", "a\\b", "a.b", "..", "%2E.", "x" * 400, "x" * 401]
    assert len({folder_name(name) for name in names}) == len(names)


@pytest.mark.parametrize("publish", MODES)
def test_two_pipelines_in_one_folder_are_told_apart(tmp_path, publish):
    sink, rows = files_sink(tmp_path, publish=publish), memory_rows("orders", (table_of([1]),))
    sink.land(attempt_at(WINDOW, pipeline="one"), rows)
    with pytest.raises(SettingsError, match=r"pipeline one.*pipeline two cannot land orders"):
        sink.land(attempt_at(WINDOW, pipeline="two"), rows)


def test_a_folder_that_is_no_window_of_ours_is_left_alone(tmp_path):
    (tmp_path / "out/orders" / f"window={WINDOW.id}").mkdir(parents=True)
    (tmp_path / "out/orders" / f"window={WINDOW.id}" / "mine.txt").write_text("keep")
    with pytest.raises(PublishConflict, match=r"exists without _landing\.json"):
        files_sink(tmp_path).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert (tmp_path / "out/orders" / f"window={WINDOW.id}" / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}'])
def test_a_damaged_manifest_is_an_error_and_never_read_as_absent(tmp_path, content):
    sink, rows = files_sink(tmp_path, publish="manifest"), memory_rows("orders", (table_of([1]),))
    sink.land(attempt_at(WINDOW), rows)
    (tmp_path / "out/orders/_manifests" / f"{WINDOW.id}.json").write_bytes(content)
    with pytest.raises(PublishConflict, match="not the record of a window"):
        sink.land(attempt_at(WINDOW), rows)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_full_disk_is_one_clear_sentence(form):
    def write_to_full_disk() -> None:
        with Path("/dev/full").open("wb", buffering=0) as full, storage_errors("out"):
            writer = open_writer(form, table_of([]).schema, full)
            writer.write(table_of([1]).to_batches()[0])
            writer.close()

    with pytest.raises(SinkUnreachable, match="cannot write to out: No space left"):
        write_to_full_disk()


def test_a_path_that_cannot_be_a_folder_is_one_clear_sentence(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkUnreachable, match="cannot write to"):
        files_sink(tmp_path).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))


EXACT = pa.table(
    {
        "n": pa.array([2**63 - 1, None], pa.int64()),
        "price": pa.array([decimal.Decimal("0.000000000001"), decimal.Decimal("-12.5")], pa.decimal128(30, 12)),
        "at": pa.array([dt.datetime(2026, 1, 31, 23, 59, 59, 999999), None], pa.timestamp("us", tz="Europe/Berlin")),  # noqa: DTZ001
        "wall": pa.array([253402300800000000, 0], pa.timestamp("us")),  # the first is in the year 10000
        "day": pa.array([dt.date(2026, 1, 31), None]),
        "raw": pa.array([b"\x00\xff", b""]),
        "text": pa.array(["", None]),
        "hard": pa.array(['a"b,c\r\nd\u2028', " ✓ "]),
        "yes": pa.array([True, None]),
        "ratio": pa.array([0.1, 1e300]),
        "tags": pa.array([["a", None], None], pa.list_(pa.string())),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


def test_json_lines_keep_every_value(tmp_path):
    files_sink(tmp_path, format="json").land(attempt_at(WINDOW), memory_rows("orders", (EXACT,)))
    (path,) = readable(tmp_path)
    assert path.name == "part-00000.jsonl"
    first, second = (json.loads(line) for line in path.read_bytes().decode().split("\n")[:-1])
    assert first == {
        "n": 2**63 - 1, "price": "0.000000000001", "at": "2026-01-31T23:59:59.999999Z", "wall": "10000-01-01T00:00:00.000000",
        "day": "2026-01-31", "raw": "AP8=", "text": "", "hard": 'a"b,c\r\nd\u2028', "yes": True, "ratio": 0.1,
        "tags": ["a", None], "map": {"k": 1},
    }  # fmt: skip
    assert second["price"] == "-12.500000000000"
    assert [second[name] for name in ("n", "at", "day", "text", "yes", "tags", "map")] == [None] * 7
    assert second["raw"] == ""


def test_csv_keeps_every_value_and_tells_null_from_empty(tmp_path):
    files_sink(tmp_path, format="csv").land(attempt_at(WINDOW), memory_rows("orders", (EXACT,)))
    (path,) = readable(tmp_path)
    text = path.read_bytes().decode()
    with path.open(newline="") as file:
        header, first, second = csv.reader(file)
    assert header == EXACT.schema.names
    assert first == [
        str(2**63 - 1), "0.000000000001", "2026-01-31T23:59:59.999999Z", "10000-01-01T00:00:00.000000", "2026-01-31",
        "AP8=", "", 'a"b,c\r\nd\u2028', "true", "0.1", '["a", null]', '{"k": 1}',
    ]  # fmt: skip
    assert second[:4] == ["", "-12.500000000000", "", "1970-01-01T00:00:00.000000"]
    assert text.splitlines()[-1].startswith(',"-12.500000000000",,'), "NULL has no quotes"
    assert ',"AP8=","","a""b' in text, "an empty text has"


@pytest.mark.parametrize(
    ("form", "table", "error", "says"),
    [
        ("json", pa.table({"r": [1.0, float("nan")]}), ValueNotKept, "column r contains nan"),
        ("json", pa.table({"r": [[float("inf")]]}), ValueNotKept, "column r contains inf"),
        ("json", pa.table({"d": pa.array([1], pa.duration("s"))}), SchemaRefused, "column d has type duration"),
        ("csv", pa.table({"d": pa.array([[1]], pa.list_(pa.duration("s")))}), SchemaRefused, "column d has type list"),
        ("json", pa.table([[1], [2]], names=["a", "a"]), SchemaRefused, "repeated: a"),
        ("csv", pa.table({"only": ["a", None]}), ValueNotKept, "an empty line, which readers skip"),
        ("json", pa.table({"m": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))}), ValueNotKept, "twice"),
    ],
)  # fmt: skip
def test_a_value_that_the_format_cannot_keep_is_refused_by_name_and_nothing_lands(tmp_path, form, table, error, says):
    with pytest.raises(error, match=says):
        files_sink(tmp_path, format=form).land(attempt_at(WINDOW), memory_rows("orders", (table,)))
    assert everything_in(tmp_path) == set()


def test_a_window_without_rows_still_says_its_columns(tmp_path):
    assert files_sink(tmp_path).land(attempt_at(WINDOW), memory_rows("orders", (table_of([]),))).rows == 0
    assert pq.ParquetFile(readable(tmp_path)[0]).schema_arrow.names == ["id", "name", "at"]


def test_rename_is_not_offered_for_object_stores():
    with pytest.raises(SettingsError, match="needs a local folder"):
        FilesSink(FilesSinkSettings(path="s3://bucket/x", publish="rename"), "1:files", Path())


def test_an_address_of_an_unknown_store_is_refused_without_its_password():
    sink = FilesSink(FilesSinkSettings(path="ftp://user:geheim@host/x"), "1:files", Path())
    with pytest.raises(SettingsError) as caught:
        sink.land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    assert "geheim" not in str(caught.value)


def test_an_ordinary_user_is_told_about_permissions(tmp_path):
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(SinkUnreachable, match="Permission denied"):
        files_sink(tmp_path).land(attempt_at(WINDOW), memory_rows("orders", (table_of([1]),)))
    tmp_path.chmod(0o700)


@pytest.mark.spark
@pytest.mark.parametrize("publish", MODES)
def test_splits_of_unknown_size_land_through_spark_tasks(tmp_path, spark, publish):
    rows = memory_rows("orders", (table_of([1, 2]), table_of([]), table_of([3])), counted=False)
    landing = files_sink(tmp_path, publish=publish).land(attempt_at(WINDOW, spark=lambda: spark), rows)
    assert (landing.rows, ids(tmp_path)) == (3, [1, 2, 3])
    assert len(readable(tmp_path)) == 2 == len(list(tmp_path.rglob("*.parquet"))), "no file without rows"


@pytest.mark.spark
def test_rows_are_told_while_tasks_still_write_them(tmp_path, spark):
    reported = []

    def hear(rows: int) -> None:
        reported.append(rows)
        if len(reported) == 3:
            (tmp_path / "enough").touch()

    batch = table_of(range(100)).to_batches()[0]
    splits = (TrickleSplit(batch, tmp_path / "enough"), TrickleSplit(batch, tmp_path / "enough"))
    attempt = attempt_at(WINDOW, spark=lambda: spark, progress=hear)
    landing = files_sink(tmp_path).land(attempt, Rows("orders", batch.schema, splits=splits))
    assert sum(reported) == landing.rows == len(ids(tmp_path))
    assert min(reported) > 0


@pytest.mark.spark
@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_rows_that_only_spark_can_read_land_too(tmp_path, spark, form):
    table = table_of(range(1000))
    landing = files_sink(tmp_path, format=form).land(
        attempt_at(WINDOW, spark=lambda: spark), spark_rows(memory_rows("orders", (table,)))
    )
    assert landing.rows == 1000
    if form == "parquet":
        assert ids(tmp_path) == list(range(1000))


@pytest.mark.spark
def test_an_error_in_a_task_arrives_as_itself(tmp_path, spark):
    rows = memory_rows("orders", (pa.table({"r": [float("nan")]}), pa.table({"r": [1.0]})), counted=False)
    with pytest.raises(ValueNotKept, match="column r contains nan"):
        files_sink(tmp_path, format="json").land(attempt_at(WINDOW, spark=lambda: spark), rows)
    assert everything_in(tmp_path) == set()
