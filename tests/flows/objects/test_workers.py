"""Several processes and pipelines on one ledger in PostgreSQL: they take turns, and none writes after its turn (G4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.objects.text_objects import TextObjects
from tests.support.wait import wait_until
from tests.support.world import Child

FREEZING = Path(__file__).with_name("freezing_child.py")
SECONDS = 90


@pytest.fixture
def objects(database: str, tmp_path: Path) -> Iterator[TextObjects]:
    objects = TextObjects(tmp_path, store=database)
    yield objects
    objects.close()


@pytest.fixture
def regions(database: str, tmp_path: Path) -> Iterator[list[TextObjects]]:
    """Four pipelines that share a store."""
    pipelines = [TextObjects(tmp_path, name=name, store=database) for name in ("north", "south", "east", "west")]
    yield pipelines
    for one in pipelines:
        one.close()


def check_overtaken(objects: TextObjects, child: Child, expected: Counter[str]) -> None:
    """What the woken process does: nothing, but say that it lost its turn."""
    assert objects.landed() == expected
    before = objects.bookmarks(), objects.history()
    objects.stop_children()
    child.wake()
    (woken,) = child.results()
    assert woken["outcome"] == "failed"
    assert woken["error"]["code"] == "lease-lost"
    assert (objects.bookmarks(), objects.history()) == before
    assert objects.landed() == expected
    assert objects.catch_up()[0].outcome == "nothing new"


def test_a_process_frozen_in_the_middle_of_staging_writes_nothing_when_it_wakes(objects: TextObjects) -> None:
    keys = [f"{number:02}" for number in range(30)]
    objects.put(keys)
    child = objects.start(script=FREEZING)
    child.wait_frozen()
    staged = len(objects.bookmarks())
    assert 0 < staged < len(keys)
    changed = [keys[0], *keys[staged : staged + 3], keys[-1]]  # of what is staged, is about to be, and would be later
    objects.put(changed, "second")
    objects.catch_up()
    # The versions that it listed are not there any more, and are not read.
    expected = Counter(f"{key} {'second' if key in changed else 'first'}" for key in keys)
    check_overtaken(objects, child, expected)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["intend.before", "intend.after", "land.written", "land.published", "advance.before"])
def test_a_process_frozen_past_its_lease_publishes_nothing_when_it_wakes(objects: TextObjects, point: str) -> None:
    objects.put("abc")
    assert objects.run().outcome == "landed"
    objects.put("de")
    child = objects.start("cycles", f"{point}:stop")
    child.wait_frozen()
    objects.put("fg")
    results = objects.catch_up()
    assert results[0].recovered == (point != "intend.before")
    objects.put("h")
    objects.catch_up()
    check_overtaken(objects, child, Counter(f"{key} first" for key in "abcdefgh"))


@pytest.mark.slow
def test_two_processes_on_one_pipeline_take_turns(objects: TextObjects) -> None:
    children = [objects.start("cycles") for _ in range(2)]
    expected: Counter[str] = Counter()

    def both_had_a_turn() -> bool:
        """More arrives until then."""
        key = f"{len(expected):04}"
        objects.put([key])
        expected[f"{key} first"] += 1
        return len({one.who for one in objects.history() if one.kind == "landed"}) == len(children)

    wait_until(both_had_a_turn, seconds=SECONDS)
    objects.stop_children()
    results = [child.results() for child in children]
    objects.catch_up()
    assert objects.landed() == expected
    codes = {one["error"]["code"] for some in results for one in some if one["outcome"] == "failed"}
    assert codes <= {"lease-held"}
    entries = list(reversed(objects.history()))
    assert [one.epoch for one in entries] == sorted(one.epoch for one in entries)
    assert [one.start for one in entries[1:]] == [one.end for one in entries[:-1]]


@pytest.mark.slow
def test_pipelines_that_share_a_store_do_not_disturb_each_other(regions: list[TextObjects]) -> None:
    children = {one: one.start("cycles") for one in regions}  # all of them make the tables at once
    keys = [f"{number:02}" for number in range(20)]
    for one in regions:
        one.put(keys, one.name)  # the same keys everywhere
    wait_until(lambda: all(sum(one.landed().values()) == len(keys) for one in regions), seconds=SECONDS)
    north = regions[0]
    north.put(keys[:5], "again")
    wait_until(lambda: sum(north.landed().values()) == len(keys) + 5, seconds=SECONDS)
    for one, child in children.items():
        one.stop_children()
        assert {result["outcome"] for result in child.results()} <= {"landed", "nothing new"}
        again = Counter(f"{key} again" for key in keys[:5]) if one is north else Counter()
        assert one.landed() == Counter(f"{key} {one.name}" for key in keys) + again
        assert [row["key"] for row in one.bookmarks()] == keys
