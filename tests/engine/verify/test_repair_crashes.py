"""G2 and G4 for repairs: killed anywhere, a second one leaves the table as the source is, with nothing twice."""

from __future__ import annotations

import pytest

from headwater.model.errors import LeaseHeld, LeaseLost
from tests.engine.verify.sql_table import PostgresTable, differences

pytestmark = pytest.mark.spark
# The second passage of `land.written` is that of the extra rows, which go in a landing of their own.
PASSAGES = ["land.before:1", "land.written:1", "land.published:1", "land.after:1", "land.written:2"]


@pytest.fixture
def items(database, tmp_path, spark, namespace):
    items = PostgresTable(database, tmp_path, spark, f"{namespace}.items", {"table": "public.items", "cursor": "id"})
    items.sql(
        "CREATE TABLE items (id bigint PRIMARY KEY, v text)",
        "INSERT INTO items SELECT n, 'v' || n FROM generate_series(1, 300) n",
    )
    items.run()
    items.lake("DELETE FROM {t} WHERE id IN (5, 6)")
    items.lake("UPDATE {t} SET v = 'wrong' WHERE id = 7")
    items.sql("DELETE FROM items WHERE id = 8")
    yield items
    items.close()


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_in_a_repair_is_repaired_by_another(items: PostgresTable, passage):
    point, number = passage.split(":")
    items.kill_at(f"{point}:kill:{number}", "repair")
    items.expire_lease()
    items.repair(delete_extra=True)
    verified = items.verify()
    assert verified.is_equal, differences(verified)
    rows = sorted(items.lake("SELECT id, v FROM {t}"))
    assert rows == [(n, f"v{n}") for n in range(1, 301) if n != 8]
    assert items.run().outcome == "nothing new"


def test_a_repair_that_lost_its_lease_publishes_nothing(items: PostgresTable):
    child = items.start("repair", "land.written:stop:1")
    child.wait_frozen()
    items.expire_lease()
    items.sql("INSERT INTO items VALUES (301, 'v301')")
    items.run()
    items.repair(delete_extra=True)
    before = items.lake("SELECT snapshot_id FROM {t}.snapshots")
    child.wake()
    child.wait()
    assert LeaseLost.code in child.output or "LeaseLost" in child.output, child.output
    assert items.lake("SELECT snapshot_id FROM {t}.snapshots") == before
    assert items.verify().is_equal


def test_a_repair_says_who_runs_the_pipeline_when_it_cannot_wait(items: PostgresTable):
    with items.pipeline() as pipeline:
        store = pipeline.project.store
        lease = store.acquire(items.name, "another@host/1", 60)
        with pytest.raises(LeaseHeld, match="another@host"):
            items.repair(wait_seconds=0.2)
        store.release(lease)
        assert pipeline.verify().tables[0].counts == {"missing": 2, "different": 1, "extra": 1}


def test_an_unfinished_window_is_finished_before_a_repair(items: PostgresTable):
    items.sql("INSERT INTO items VALUES (301, 'v301')")
    items.kill_at("land.published:kill")
    verified = items.verify()  # what that window landed is beyond the mark
    assert verified.tables[0].counts == {"missing": 2, "different": 1, "extra": 1}
    assert verified.tables[0].waiting == 1
    items.expire_lease()
    items.repair(delete_extra=True)
    assert items.verify().is_equal
    assert items.lake("SELECT count(*) FROM {t}") == [(300,)]
