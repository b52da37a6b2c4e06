"""Several processes and pipelines on one ledger in PostgreSQL: they take turns, and none writes after its turn (G4)."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.test_crashes import state_of
from tests.flows.objects.object_yard import SECONDS, Child, Yard
from tests.support.wait import wait_until


@pytest.fixture
def yard(request: pytest.FixtureRequest, database: str, tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path, database, *getattr(request, "param", ["objects"]))
    yield made
    made.end()


def frozen(yard: Yard, mode: str, fault: str = "") -> Child:
    child = yard.start(mode, "objects", fault)
    wait_until(lambda: state_of(child.process.pid) == "T", seconds=SECONDS)
    return child


def check_overtaken(yard: Yard, child: Child, expected: Counter[str]) -> None:
    """What the woken process does: nothing, but say that it lost its turn."""
    assert yard.landed("objects") == expected
    before = yard.bookmarks("objects"), yard.history("objects")
    (yard.folder / "stop").touch()
    os.kill(child.process.pid, signal.SIGCONT)
    (woken,) = child.results()
    assert woken["outcome"] == "failed"
    assert woken["error"]["code"] == "lease-lost"
    assert (yard.bookmarks("objects"), yard.history("objects")) == before
    assert yard.landed("objects") == expected
    assert yard.catch_up("objects")[0].outcome == "nothing new"


def test_a_process_frozen_in_the_middle_of_staging_writes_nothing_when_it_wakes(yard: Yard) -> None:
    keys = [f"{number:02}" for number in range(30)]
    yard.put("objects", keys)
    child = frozen(yard, "freeze")
    staged = len(yard.bookmarks("objects"))
    assert 0 < staged < len(keys)
    changed = [keys[0], *keys[staged : staged + 3], keys[-1]]  # of what is staged, is about to be, and would be later
    yard.put("objects", changed, "second")
    yard.catch_up("objects")
    # The versions that it listed are not there any more, and are not read.
    expected = Counter(f"{key} {'second' if key in changed else 'first'}" for key in keys)
    check_overtaken(yard, child, expected)


@pytest.mark.parametrize("point", ["intend.before", "intend.after", "land.written", "land.published", "advance.before"])
def test_a_process_frozen_past_its_lease_publishes_nothing_when_it_wakes(yard: Yard, point: str) -> None:
    yard.put("objects", "abc")
    assert yard.run("objects").outcome == "landed"
    yard.put("objects", "de")
    child = frozen(yard, "cycles", f"{point}:stop")
    yard.put("objects", "fg")
    results = yard.catch_up("objects")
    assert results[0].recovered == (point != "intend.before")
    yard.put("objects", "h")
    yard.catch_up("objects")
    check_overtaken(yard, child, Counter(f"{key} first" for key in "abcdefgh"))


def test_two_processes_on_one_pipeline_take_turns(yard: Yard) -> None:
    children = [yard.start("cycles", "objects") for _ in range(2)]
    expected: Counter[str] = Counter()

    def both_had_a_turn() -> bool:
        """More arrives until then."""
        key = f"{len(expected):04}"
        yard.put("objects", [key])
        expected[f"{key} first"] += 1
        return len({one.who for one in yard.history("objects") if one.kind == "landed"}) == len(children)

    wait_until(both_had_a_turn, seconds=SECONDS)
    (yard.folder / "stop").touch()
    results = [child.results() for child in children]
    yard.catch_up("objects")
    assert yard.landed("objects") == expected
    codes = {one["error"]["code"] for some in results for one in some if one["outcome"] == "failed"}
    assert codes <= {"lease-held"}
    entries = list(reversed(yard.history("objects")))
    assert [one.epoch for one in entries] == sorted(one.epoch for one in entries)
    assert [one.start for one in entries[1:]] == [one.end for one in entries[:-1]]


@pytest.mark.parametrize("yard", [["north", "south", "east", "west"]], indirect=True)
def test_pipelines_that_share_a_store_do_not_disturb_each_other(yard: Yard) -> None:
    children = {name: yard.start("cycles", name) for name in yard.names}  # all of them make the tables at once
    keys = [f"{number:02}" for number in range(20)]
    for name in yard.names:
        yard.put(name, keys, name)  # the same keys everywhere
    wait_until(lambda: all(sum(yard.landed(name).values()) == len(keys) for name in yard.names), seconds=SECONDS)
    yard.put("north", keys[:5], "again")
    wait_until(lambda: sum(yard.landed("north").values()) == len(keys) + 5, seconds=SECONDS)
    (yard.folder / "stop").touch()
    for name, child in children.items():
        assert {one["outcome"] for one in child.results()} <= {"landed", "nothing new"}
        again = Counter(f"{key} again" for key in keys[:5]) if name == "north" else Counter()
        assert yard.landed(name) == Counter(f"{key} {name}" for key in keys) + again
        assert [row["key"] for row in yard.bookmarks(name)] == keys
