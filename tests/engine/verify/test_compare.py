"""Which rows differ, decided from hashes alone."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.verify.compare import without_rejects
from headwater.engine.verify.digest import KEY, ROW, Differences, compare_bags, compare_keys
from headwater.model.rows import Reject

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=25)


def listed(rows: list[tuple[int, int]]) -> pa.Table:
    """Key and value of each row, which stand for their own hashes."""
    keys, values = (pa.array([row[n] for row in rows], pa.uint64()) for n in (0, 1))
    return pa.table([keys.cast(pa.int64()), keys, keys, values, values], ["id", *KEY, *ROW])


def ids(differences: Differences) -> tuple[list[int], ...]:
    return tuple(
        sorted(one.column("id").to_pylist()) for one in (differences.missing, differences.different, differences.extra)
    )


@given(ROWS, ROWS)
def test_of_every_key_the_table_has_one_row_and_it_is_the_sources(source, table):
    here, there = ({key: [v for k, v in rows if k == key] for key, _ in rows} for rows in (source, table))
    missing = sorted(here.keys() - there.keys())
    extra = sorted(there.keys() - here.keys())
    different = sorted(
        key for key in here.keys() & there.keys() if len(there[key]) > 1 or there[key][0] not in here[key]
    )
    assert ids(compare_keys(listed(source), listed(table), ["id"])) == (missing, different, extra)


@given(ROWS, ROWS)
def test_in_a_bag_every_row_counts_as_often_as_it_is_there(source, table):
    here, there = Counter(source), Counter(table)
    missing, extra = sorted({key for key, _ in here - there}), sorted({key for key, _ in there - here})
    assert ids(compare_bags(listed(source), listed(table), ["id"])) == (missing, [], extra)


def test_an_earlier_version_of_a_row_that_cannot_be_kept_is_no_row_too_many():
    moment = dt.datetime(2026, 3, 2, 9, 0, 0, 120000, tzinfo=dt.UTC)
    extra = pa.table({"id": [1, 2, 3], "at": pa.array([moment] * 3, pa.timestamp("us", "UTC"))})
    rejects = [
        Reject("s", {"row": '{"id": 2, "at": "2026-03-02 09:00:00.12+00"}'}, "NaN", b""),
        Reject("s", {"row": '{"at": "2026-03-02 09:00:00.12+00"}'}, "NaN", b""),
        Reject("s", {"sink": "1:iceberg"}, "NaN", b""),
    ]
    assert without_rejects(extra, ["id", "at"], rejects).column("id").to_pylist() == [1, 3]
