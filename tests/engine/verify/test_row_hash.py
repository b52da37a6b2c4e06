"""Equal rows have equal hashes, whoever read them and in whatever batches; any other value has another."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.verify.digest import Ranges, RangeSums, as_numbers
from headwater.engine.verify.row_hash import hash_rows, hash_values

LONG = st.one_of(st.text(max_size=20), st.text(min_size=200, max_size=300))
EXACT = decimal.Context(prec=76)
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), st.floats(width=32)),
    "float64": (pa.float64(), st.floats()),
    "decimal": (pa.decimal128(38, 4), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: decimal.Decimal(n).scaleb(-4, EXACT))),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "timestamptz": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "string": (pa.string(), LONG),
    "binary": (pa.binary(), st.one_of(st.binary(max_size=20), st.binary(min_size=250, max_size=270))),
    "uuid": (pa.uuid(), st.uuids().map(lambda u: u.bytes)),
    "list": (pa.list_(pa.string()), st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=4)),
    "map": (pa.map_(pa.string(), pa.int64()), st.dictionaries(st.text(max_size=2), st.integers(0, 3), max_size=3).map(lambda d: list(d.items()))),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int32()))]),
        st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=3))}),
    ),
}  # fmt: skip
NAMES = list(TYPES)
ROW = st.fixed_dictionaries({name: st.one_of(st.none(), kind) for name, (_, kind) in TYPES.items()})


def batch(rows: list[dict]) -> pa.RecordBatch:
    arrays = []
    for name, (kind, _) in TYPES.items():
        values = [row[name] for row in rows]
        storage = pa.array(values, kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
        arrays.append(
            pa.ExtensionArray.from_storage(kind, storage) if isinstance(kind, pa.BaseExtensionType) else storage
        )
    return pa.RecordBatch.from_arrays(arrays, names=NAMES)


def hashes(rows: pa.RecordBatch, names=NAMES) -> list[tuple[int, int]]:
    return list(zip(*(lane.tolist() for lane in hash_rows(rows, names)), strict=True))


def the_same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list) and one and isinstance(one[0], tuple) and isinstance(other, list):
        return sorted(one) == sorted(other)
    return type(one) is type(other) and one == other


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(ROW, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_neither_order_nor_batches_nor_slices_matter(rows, random):
    expected = hashes(batch(rows))
    order = list(range(len(rows)))
    random.shuffle(order)
    assert hashes(batch([rows[n] for n in order])) == [expected[n] for n in order]
    assert [hashes(batch([row]))[0] for row in rows] == expected
    cut = random.randrange(len(rows))
    assert hashes(batch(rows).slice(cut)) == expected[cut:]
    names = list(NAMES)
    random.shuffle(names)
    assert hashes(batch(rows), names) == expected


@pytest.mark.slow
@settings(max_examples=200)
@given(ROW, st.sampled_from(NAMES), st.data())
def test_any_changed_value_changes_the_hash(row, name, data):
    other = {**row, name: data.draw(st.one_of(st.none(), TYPES[name][1]))}
    same = the_same(row[name], other[name])
    assert (hashes(batch([row])) == hashes(batch([other]))) is same


def test_values_that_swap_their_rows_or_columns_are_seen():
    here = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    rows = pa.record_batch({"a": [1, 2], "b": [4, 3]})
    columns = pa.record_batch({"a": [3, 2], "b": [1, 4]})
    sums = [tuple(int(np.sum(lane)) for lane in hash_rows(one, ["a", "b"])) for one in (here, rows, columns)]
    assert len(set(sums)) == 3


@pytest.mark.parametrize("value", ["", "a", "a\0", "\0", "\0\0", "a" * 8, "a" * 9, "a" * 256, "a" * 257, None])
def test_texts_that_look_alike_are_not(value):
    others = ["", "a", "a\0", "\0", "\0\0", "a" * 8, "a" * 9, "a" * 256, "a" * 257, None]
    one = hashes(pa.record_batch({"t": pa.array([value], pa.string())}), ["t"])[0]
    hash_values = hashes(pa.record_batch({"t": pa.array(others, pa.string())}), ["t"])
    assert [n for n, other in enumerate(hash_values) if other == one] == [others.index(value)]


def test_there_is_one_nan_and_two_zeros():
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    first, _ = hash_values(pa.array([math.nan, other_nan, 0.0, -0.0]))
    assert first[0] == first[1]
    assert first[2] != first[3]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1)), max_size=300),
    st.integers(2, 40),
    st.data(),
)
def test_sums_of_ranges_do_not_depend_on_how_rows_come(rows, count, data):
    keys, words = (np.array([row[n] for row in rows], kind) for n, kind in ((0, np.int64), (1, np.uint64)))
    ranges = Ranges.by_value("k", [(-1000, 10, 5), (5, 2**62, 50)], count)
    of = ranges.of(pa.record_batch({"k": keys}), (words, words))
    total, parts = RangeSums.empty(ranges.count), RangeSums.empty(ranges.count)
    total.add(of, (words, words))
    cut = data.draw(st.integers(0, len(rows)))
    for some in (slice(cut, None), slice(0, cut)):
        one = RangeSums.empty(ranges.count)
        one.add(of[some], (words[some], words[some]))
        parts.join(one)
    assert not total.differing(parts)
    assert sum(int(value) for value in total.values[1]) % 2**64 == sum(int(word) for word in words) % 2**64
    bounds = ranges.bounds(range(ranges.count))
    assert bounds == [(-(2**63), 2**63 - 1)]
    for number, key in zip(of, keys, strict=True):
        ((low, high),) = ranges.bounds([int(number)])
        assert low <= key <= high


@pytest.mark.parametrize("kind", [pa.int16(), pa.int64(), pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(18, 3)])
def test_bounds_of_ranges_are_values_of_the_key(kind):
    ranges = Ranges.by_value("k", [(0, 20_000, 10)], 4)
    spans = ranges.spans(ranges.bounds([1]), kind)
    ((low, high),) = spans.bounds
    numbers = as_numbers(pa.array([low, high], kind))
    assert ranges.bounds([1]) == [tuple(numbers.tolist())]
    assert ranges.spans(ranges.bounds([0]), kind).bounds[0][0] is None
