"""A window that can no longer be read is given up, and another one brings what it held in its place (G2)."""

from __future__ import annotations

import pytest

from headwater.model.faults import RehearsedFault
from headwater.model.position.marks import LsnMark
from headwater.progress.memory import MemoryProgress
from tests.engine.change_source import ChangeSource, CurrentState, Step

pytestmark = pytest.mark.spark

FIRST = Step(10, {"public.t": [("t", 1, None, None), ("r", 2, 1, "a"), ("r", 2, 2, "b"), ("r", 2, 3, "c")]})
# Meanwhile 1 was changed, 2 deleted, 4 inserted.
AGAIN = Step(20, {"public.t": [("t", 1, None, None), ("r", 2, 1, "A"), ("r", 2, 3, "c"), ("r", 2, 4, "d")]})


@pytest.mark.parametrize("point", ["intend.after", "land.written", "land.published", "advance.before"])
def test_a_window_that_is_lost_is_replaced_and_nothing_of_it_stays(tmp_path, namespace, spark, point):
    lake = CurrentState(tmp_path, spark, namespace)
    broken = lake.run(RehearsedFault(point, "sink", 1), ChangeSource([FIRST]))
    assert broken.outcome == "failed"
    result = lake.run(source=ChangeSource([AGAIN], lost="the snapshot ended with its process"))
    assert result.outcome == "landed", result.error
    assert not result.recovered
    assert [window.end.lsn for window in result.windows if isinstance(window.end, LsnMark)] == [20]
    assert lake.rows("t") == {1: "A", 3: "c", 4: "d"}
    assert spark.sql(f"SELECT count(*) FROM {namespace}.t").first()[0] == 3
    kinds = lake.entries()
    assert [kind for kind, _ in kinds] == ["failed", "abandoned", "landed"]
    assert kinds[1][1] == "the snapshot ended with its process"


def test_a_window_that_can_be_read_is_finished(tmp_path, namespace, spark):
    lake = CurrentState(tmp_path, spark, namespace)
    assert lake.run(RehearsedFault("land.published", "sink", 1), ChangeSource([FIRST])).outcome == "failed"
    result = lake.run(source=ChangeSource([FIRST], lost="never asked for"))
    assert result.outcome == "landed", result.error
    assert result.recovered
    assert lake.rows("t") == {1: "a", 2: "b", 3: "c"}
    assert [kind for kind, _ in lake.entries()] == ["failed", "landed"]


def test_a_window_block_gives_a_lost_window_up_too():
    import headwater as hw

    store = MemoryProgress()
    with pytest.raises(ZeroDivisionError), hw.window(ChangeSource([FIRST]), store, name="copy"):
        1 / 0  # noqa: B018
    with hw.window(ChangeSource([AGAIN], lost="gone"), store, name="copy") as window:
        assert window.window.end.lsn == 20
        window.landed()
    assert [entry.kind for entry in store.history("copy", 9)] == ["landed", "abandoned"]
