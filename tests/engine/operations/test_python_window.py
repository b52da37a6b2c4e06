"""The user's own Spark code under our mark: `with hw.window(source, store, name=…)`."""

from __future__ import annotations

import sqlite3

import pytest

import headwater as hw
from headwater.config.pipeline import SourceSettings
from headwater.config.settings import SecretText
from headwater.model.errors import RunError
from headwater.progress.memory import MemoryProgress
from headwater.sources.open import open_source
from headwater.testing.follower import RecordingSource

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)")
        shop.execute("INSERT INTO orders (note) VALUES ('a'), ('b'), ('c')")
    return tmp_path


@pytest.fixture
def source(shop):
    settings = {"sql": {"url": SecretText("sqlite:///shop.db"), "table": "orders", "cursor": "id"}}
    return open_source(SourceSettings.model_validate(settings), shop, 2)


def test_the_mark_is_kept_when_the_block_succeeds(source, shop, spark, tmp_path):
    store = MemoryProgress()
    with hw.window(source, store, name="orders") as window:
        window.read(spark).write.parquet(str(tmp_path / "out"))
    assert store.load("orders").mark.value == 3
    assert spark.read.parquet(str(tmp_path / "out")).count() == 3
    with hw.window(source, store, name="orders") as window:
        assert not window


def test_the_mark_stays_when_the_block_raises_and_the_same_window_comes_again(source, shop, spark, tmp_path):
    store = MemoryProgress()
    with pytest.raises(ZeroDivisionError), hw.window(source, store, name="orders") as window:
        first = window.window
        1 / 0  # noqa: B018
    assert store.load("orders").mark is None
    with sqlite3.connect(shop / "shop.db") as more:
        more.execute("INSERT INTO orders (note) VALUES ('d')")
    with hw.window(source, store, name="orders") as window:
        assert window.window == first
        assert window.read(spark).count() == 3


def test_a_block_that_reads_but_never_runs_a_job_does_not_move_the_mark(source, spark):
    store = MemoryProgress()
    with pytest.raises(RunError, match="without a Spark job"), hw.window(source, store, name="orders") as window:
        window.read(spark).filter("id > 1")  # lazy: nothing was written
    assert store.load("orders").mark is None


def test_a_user_can_vouch_for_what_another_library_wrote(source):
    store = MemoryProgress()
    with hw.window(source, store, name="orders") as window:
        rows = [batch for split in window.streams["orders"].splits for batch in split.read()]
        assert sum(batch.num_rows for batch in rows) == 3
        window.landed()
    assert store.load("orders").mark.value == 3


def test_the_source_is_acknowledged_once_the_mark_is_stored(source, spark, tmp_path):
    """G10: a slot that is never acknowledged keeps its WAL until the disk is full."""
    store, record = MemoryProgress(), tmp_path / "acknowledged"
    with hw.window(RecordingSource(source, record), store, name="orders") as window:
        assert window.read(spark).count() == 3
        assert not record.exists()
    assert record.read_text().splitlines() == [str(store.load("orders").mark)]


def test_a_block_that_fails_acknowledges_nothing(source, spark, tmp_path):
    record = tmp_path / "acknowledged"
    with (
        pytest.raises(ZeroDivisionError),
        hw.window(RecordingSource(source, record), MemoryProgress(), name="orders") as window,
    ):
        window.read(spark).count()
        raise ZeroDivisionError
    assert not record.exists()


def test_a_block_holds_its_lease_as_long_as_a_pipeline_does_by_default(source):
    class Observed(MemoryProgress):
        def acquire(self, pipeline, owner, ttl_seconds):
            self.ttl_seconds = ttl_seconds
            return super().acquire(pipeline, owner, ttl_seconds)

    store = Observed()
    with hw.window(source, store, name="orders") as window:
        window.landed()
    assert store.ttl_seconds == 30
