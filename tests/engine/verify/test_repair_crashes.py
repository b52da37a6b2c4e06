"""G2 and G4 for repairs: killed anywhere, a second one leaves the table as the source is, with nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.model.errors import LeaseHeld, LeaseLost
from headwater.testing.crashes import expire_lease, lend
from tests.engine.shop import CHILD as CYCLE
from tests.engine.verify.yard import Yard, found
from tests.support.warm_processes import warm_programs

pytestmark = pytest.mark.spark
CHILD = Path(__file__).parent / "verify_child.py"
# The second passage of `land.written` is that of the extra rows, which go in a landing of their own.
PASSAGES = ["land.before:1", "land.written:1", "land.published:1", "land.after:1", "land.written:2"]


@pytest.fixture
def yard(database, tmp_path, spark, namespace) -> Yard:
    made = Yard(database, tmp_path, spark, f"{namespace}.items", {"table": "public.items", "cursor": "id"})
    made.sql(
        "CREATE TABLE items (id bigint PRIMARY KEY, v text)",
        "INSERT INTO items SELECT n, 'v' || n FROM generate_series(1, 300) n",
    )
    made.run()
    made.lake("DELETE FROM {t} WHERE id IN (5, 6)")
    made.lake("UPDATE {t} SET v = 'wrong' WHERE id = 7")
    made.sql("DELETE FROM items WHERE id = 8")
    return made


def start_child(yard: Yard, fault: str) -> subprocess.Popen[str]:
    python = sys.executable if ":stop" in fault else warm_programs().child  # a stopped one is woken by its pid
    return subprocess.Popen(
        [python, str(CHILD), str(yard.folder / "yard.yaml")],
        env={**os.environ, **lend(yard.spark), "HEADWATER_FAULT": fault},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_in_a_repair_is_repaired_by_another(yard: Yard, passage):
    point, number = passage.split(":")
    child = start_child(yard, f"{point}:kill:{number}")
    _, errors = child.communicate(timeout=180)
    assert child.returncode == -signal.SIGKILL, f"the point was not reached: {errors}"
    expire_lease(yard.folder, "yard")
    yard.repair(delete_extra=True)
    verified = yard.verify()
    assert verified.is_equal, found(verified)
    rows = sorted(yard.lake("SELECT id, v FROM {t}"))
    assert rows == [(n, f"v{n}") for n in range(1, 301) if n != 8]
    assert yard.run().outcome == "nothing new"


def test_a_repair_that_lost_its_lease_publishes_nothing(yard: Yard):
    child = start_child(yard, "land.written:stop:1")
    deadline = time.monotonic() + 120
    while Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        assert time.monotonic() < deadline, "the child did not stop"
        time.sleep(0.05)
    expire_lease(yard.folder, "yard")
    yard.sql("INSERT INTO items VALUES (301, 'v301')")
    yard.run()
    yard.repair(delete_extra=True)
    before = yard.lake("SELECT snapshot_id FROM {t}.snapshots")
    child.send_signal(signal.SIGCONT)
    _, errors = child.communicate(timeout=120)
    assert LeaseLost.code in errors or "LeaseLost" in errors, errors
    assert yard.lake("SELECT snapshot_id FROM {t}.snapshots") == before
    assert yard.verify().is_equal


def test_a_repair_says_who_runs_the_pipeline_when_it_cannot_wait(yard: Yard):
    project, pipeline = yard.open()
    with project:
        lease = project.store.acquire("yard", "another@host/1", 60)
        with pytest.raises(LeaseHeld, match="another@host"):
            yard.repair(wait_seconds=0.2)
        project.store.release(lease)
        assert pipeline.verify().tables[0].counts == {"missing": 2, "different": 1, "extra": 1}


def test_an_unfinished_window_is_finished_before_a_repair(yard: Yard):
    yard.sql("INSERT INTO items VALUES (301, 'v301')")
    environment = {**os.environ, **lend(yard.spark), "HEADWATER_FAULT": "land.published:kill"}
    killed = subprocess.run([warm_programs().child, CYCLE, yard.folder / "yard.yaml"], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    verified = yard.verify()  # what that window landed is beyond the mark
    assert verified.tables[0].counts == {"missing": 2, "different": 1, "extra": 1}
    assert verified.tables[0].waiting == 1
    expire_lease(yard.folder, "yard")
    yard.repair(delete_extra=True)
    assert yard.verify().is_equal
    assert yard.lake("SELECT count(*) FROM {t}") == [(300,)]
