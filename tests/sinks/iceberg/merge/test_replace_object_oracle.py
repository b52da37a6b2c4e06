"""Any sequence of windows of objects, with crashes and other writers in between, against a list in Python."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.sinks.iceberg.catalog.test_publish import Once
from tests.sinks.iceberg.lake_table import LakeTable, objects, url_of
from tests.sinks.iceberg.test_failures import Crash, CrashAt

pytestmark = pytest.mark.spark

NAMES = ["a", "b/1", "b/2", "c d", "é"]
PARTITIONS = [[], ["bucket(2, object_url)"], ["truncate(1, note)"]]
_TABLES = itertools.count(1)

Event = Literal["", "land.written", "land.published", "insert", "delete", "compact"]


@dataclass(frozen=True)
class Step:
    """One window: how many rows each of its objects has now (0: it is empty or gone), and what happens meanwhile."""

    counts: dict[str, int]
    known: set[str]  # objects that the ledger knows though the table has no row of them
    event: Event
    of: str  # the object that the event is about


STEPS = st.lists(
    st.builds(
        Step,
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), max_size=4),
        st.sets(st.sampled_from(NAMES), max_size=2),
        st.sampled_from(["", "", "land.written", "land.published", "insert", "delete", "compact"]),
        st.sampled_from(NAMES),
    ),
    min_size=3,
    max_size=5,
)


class Oracle:
    """Rows as a list: id and object."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str]] = []
        self._ids = itertools.count(1)

    def contents(self, counts: dict[str, int]) -> dict[str, list[int]]:
        return {name: list(itertools.islice(self._ids, count)) for name, count in counts.items()}

    def replace(self, contents: dict[str, list[int]], earlier: set[str]) -> None:
        self.rows = [row for row in self.rows if row[1] not in earlier]
        self.rows += [(n, name) for name, ids in contents.items() for n in ids]


def elsewhere(lands: LakeTable, oracle: Oracle, step: Step) -> None:
    """What another writer does to the table."""
    match step.event:
        case "insert":
            (number,) = oracle.contents({step.of: 1})[step.of]
            lands.spark.sql(f"INSERT INTO {lands.table} VALUES ({number}, 'foreign', '{url_of(step.of)}')")
            oracle.rows.append((number, step.of))
        case "delete":
            lands.spark.sql(f"DELETE FROM {lands.table} WHERE object_url = '{url_of(step.of)}' AND id % 2 = 0")
            oracle.rows = [row for row in oracle.rows if row[1] != step.of or row[0] % 2]
        case "compact":
            options = "map('rewrite-all', 'true')"
            lands.spark.sql(f"CALL lake.system.rewrite_data_files(table => '{lands.table}', options => {options})")


# Not shrunk: an example takes seconds.
@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=STEPS,
    partition_by=st.sampled_from(PARTITIONS),
    upsert=st.sampled_from(["auto", "delete-append", "copy-on-write", "merge"]),
)
def test_the_table_holds_what_a_list_would(
    lands: LakeTable, steps: list[Step], partition_by: list[str], upsert: str
) -> None:
    own, oracle = LakeTable(lands.spark, lands.namespace, f"oracle_{next(_TABLES)}"), Oracle()

    def sink():
        return own.sink(mode="replace_object", partition_by=partition_by, upsert=upsert)

    first = oracle.contents(dict.fromkeys(NAMES, 2))
    sink().land(own.attempt(1), objects(first, splits=3))
    oracle.replace(first, set())
    target = sink()
    for number, step in enumerate(steps, start=2):
        contents = oracle.contents(step.counts)
        in_table = {name for _, name in oracle.rows}
        earlier = (set(contents) & in_table) | step.known
        rows = objects(contents, earlier, text=f"{number}")
        before = len(oracle.rows)
        happens = any(step.counts.values()) or earlier & in_table  # else nothing is published that others could precede
        if step.event.startswith("land.") and happens:
            with pytest.raises(Crash):
                sink().land(own.attempt(number, faults=CrashAt(step.event)), rows)
            target = sink()  # another process
        meanwhile = Once(lambda step=step: elsewhere(own, oracle, step)) if happens else Once(int)
        landing = target.land(own.attempt(number, ensure_lease=meanwhile), rows)
        grown = len(oracle.rows) - before
        oracle.replace(contents, earlier)
        assert landing.rows == sum(step.counts.values())
        assert landing.proof["removed"] == before + grown + landing.rows - len(oracle.rows)
        content = sorted((row["id"], row["object_url"].removeprefix(url_of(""))) for row in own.rows())
        assert content == sorted(oracle.rows)
