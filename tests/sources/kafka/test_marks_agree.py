"""OffsetsMark and onETL's KeyValueIntHWM agree on every sequence of updates."""

from __future__ import annotations

from etl_entities.hwm import KeyValueIntHWM
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.position.marks import OffsetsMark
from headwater.testing import marks as laws

offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 50), max_size=6)
marks = st.dictionaries(st.sampled_from(["a", "b", "c"]), offsets, max_size=3).map(OffsetsMark)


@given(st.lists(offsets, min_size=1, max_size=8))
def test_updates_give_what_the_seeds_library_gives(updates: list[dict[int, int]]):
    theirs = KeyValueIntHWM(name="t", value=updates[0])
    ours = OffsetsMark({"t": updates[0]})
    for update in updates[1:]:
        theirs.update(update)
        ours = ours.join(OffsetsMark({"t": update}))
        assert dict(theirs.value) == ours.topics["t"]


def test_the_seeds_example():
    mark = OffsetsMark({"t": {0: 100, 1: 150, 2: 200}})
    assert mark.join(OffsetsMark({"t": {0: 110, 1: 155}})).topics == {"t": {0: 110, 1: 155, 2: 200}}
    assert mark.join(OffsetsMark({"t": {0: 90}})) == mark
    assert mark.join(OffsetsMark({"t": {}})) == mark
    assert mark.join(OffsetsMark({})) == mark


@given(marks, marks, marks)
def test_the_laws_of_marks(a: OffsetsMark, b: OffsetsMark, c: OffsetsMark):
    laws.check_join_is_commutative(a, b)
    laws.check_join_is_associative(a, b, c)
    laws.check_join_is_idempotent(a)
    laws.check_join_is_the_least_upper_bound(a, b, c)
    laws.check_covers_is_a_preorder(a, b, c)
