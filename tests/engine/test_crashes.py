"""G2: a crash at any point is repaired by running again: nothing lost, nothing twice."""

from __future__ import annotations

import pytest

from headwater.model.faults import EVERY_CYCLE
from headwater.testing.servers import door_to
from tests.engine.shop import Shop

pytestmark = pytest.mark.spark

PER_SINK = ("land.before", "land.written", "land.published", "land.after")
POINTS = (*EVERY_CYCLE, "acknowledge.before", "acknowledge.after")  # the child's source wants to be told
PASSAGES = [f"{point}:{{}}:{n}" for point in POINTS for n in ((1, 2) if point in PER_SINK else (1,))]


@pytest.fixture
def shop(request, database, tmp_path, namespace, spark):
    built = Shop(database, tmp_path, spark, f"{namespace}.orders", request.param)
    built.insert(30)
    first = built.run()
    assert first.outcome == "landed", first.error
    yield built
    built.close()


@pytest.mark.parametrize("shop", ["append", "merge"], indirect=True)
@pytest.mark.parametrize("passage", PASSAGES)
def test_a_kill_at_any_point_is_repaired_by_one_more_run(shop, passage):
    shop.insert(20)
    shop.update(below=10)
    shop.kill_at(passage.format("kill"), "acknowledged")
    shop.insert(5)
    result = shop.run_after_crash()
    assert result.outcome == "landed", result.error
    expected = shop.expected()
    assert shop.in_lake() == expected
    if shop.mode == "append":
        assert shop.in_files() == expected
    assert shop.run().outcome == "nothing new"


@pytest.mark.parametrize("shop", ["append", "merge"], indirect=True)
def test_a_writer_that_was_frozen_past_its_lease_cannot_publish(shop):
    """G4: stopped between writing and publishing, overtaken, woken up: nothing doubled, nothing turned back."""
    shop.insert(20)
    shop.update(below=10)
    frozen = shop.start("acknowledged", "land.written:stop:2")
    frozen.wait_frozen()
    taken_over = shop.run_after_crash()
    assert taken_over.outcome == "landed", taken_over.error
    assert taken_over.recovered
    frozen.wake()
    (woken,) = frozen.results()
    assert woken["outcome"] == "failed"
    assert woken["error"]["code"] == "lease-lost"
    assert shop.in_lake() == shop.expected()
    assert shop.run().outcome == "nothing new"


class ShutDoor:
    """Cuts the line to a server when a point is reached, for real."""

    def __init__(self, point: str, action) -> None:
        self._point, self._action, self.reached = point, action, False

    def reach(self, point: str) -> None:
        if point == self._point and not self.reached:
            self.reached = True
            self._action()


@pytest.mark.parametrize("victim", ["source", "store", "lake"])
@pytest.mark.parametrize("point", EVERY_CYCLE)
def test_an_outage_at_any_point_is_repaired_by_one_more_run(
    victim, point, database, tmp_path, namespace, spark, lake_folder
):
    port = int(database.split(":")[-1].split("/")[0])
    with door_to(port) as door:
        through_door = database.replace(f":{port}/", f":{door.port}/")
        shop = Shop(
            database, tmp_path, spark, f"{namespace}.orders", "merge",
            url=through_door if victim == "source" else "",
            store=through_door if victim == "store" else "",
        )  # fmt: skip
        shop.insert(30)
        assert shop.run().outcome == "landed"
        shop.insert(20)
        shop.update(below=10)
        data = lake_folder / namespace.split(".")[1]
        if victim == "lake":
            # A plain file in the folder's place: nothing below it can be read or written, not even by root.
            faults = ShutDoor(point, lambda: (data.rename(data.with_suffix(".away")), data.write_text("")))
        else:
            faults = ShutDoor(point, door.shut)
        first = shop.run(faults)
        assert faults.reached
        if victim == "lake":
            data.unlink()
            data.with_suffix(".away").rename(data)
        else:
            door.open()
        if first.outcome == "failed":
            assert first.error.retry == "later", first.error
        again = shop.run_after_crash()
        assert again.outcome in {"landed", "nothing new"}, again.error
        assert shop.in_lake() == shop.expected()
        assert shop.run().outcome == "nothing new"
