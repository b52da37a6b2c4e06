"""The promises of a sink as a test suite.

Subclass `SinkContract` and give it a fixture `target`; pytest does the rest:

    class TestMySink(SinkContract):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(tmp_path)
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest

from headwater.model.errors import HeadwaterError, LeaseLost, SinkUnreachable, SourceUnreachable, ValueNotKept
from headwater.model.landing import Landing
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Attempt, Sink
from headwater.model.rows import Rows
from headwater.testing.memory_rows import MemoryRejects, attempt_at, failing, memory_rows, window_up_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[int, str]  # id and note

ORDERS, ITEMS = STREAMS = ("shop.orders", "shop.items")
WINDOW_ROWS = 10  # window n holds ids from (n - 1) * WINDOW_ROWS up to, not including, n * WINDOW_ROWS

# What a probe notes of one landing, in this order.
WRITTEN, PUBLISH, PUBLISHED = "land.written", "publish", "land.published"


class SinkTarget(ABC):
    """Where the rows of one test land, and an independent reader of them. Every test gets an empty one."""

    @abstractmethod
    def open(self) -> Sink:
        """Another sink on the same target, as another process opens it. All have one id."""

    @abstractmethod
    def read(self, stream: str) -> list[Row]:
        """What readers see of a stream, repeated rows included, without the sink's own code; empty before a landing."""

    def rows(self, stream: str, content: Sequence[Row]) -> Rows:
        """The rows in a form that this sink takes: at least the columns `id` and `note`, in several splits."""
        return note_rows(stream, content)

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        """The same, and among them one row more that this sink cannot keep exactly."""
        raise NotImplementedError("give your target such a row, or your contract a reason in `keeps_all`")

    def content_after(self, windows: Sequence[Sequence[Row]]) -> list[Row]:
        """What readers see when these windows have landed one after another."""
        return [row for window in windows for row in window]

    def window(self, number: int) -> Window:
        """The window with this number, counted from 1; its `end` is the `start` of the next."""
        return window_up_to(number * WINDOW_ROWS, (number - 1) * WINDOW_ROWS if number > 1 else None)

    def spark(self) -> SparkSession:
        """The session for sinks that need one."""
        raise AssertionError("this sink lands small windows without a Spark session")

    def open_with_secret(self) -> tuple[Sink, str] | None:
        """A sink whose settings hold a secret, and the secret; it may lead nowhere. None: the settings hold none."""
        return None


class SinkContract:
    """What every sink has to keep; the names of the tests are the promises.

    A sink that cannot keep one says why in a class attribute, and its documentation says the same.
    """

    no_proof: ClassVar[str] = ""
    """Why `landed` never knows a window. Empty: it knows every window that landed."""
    doubles: ClassVar[str] = ""
    """Why a window that lands again can be there twice. Empty: it is there once."""
    stops: ClassVar[str] = ""
    """Why a row that cannot be kept stops the landing. Empty: it is a reject, and the others land."""
    keeps_all: ClassVar[str] = ""
    """Why there is no row that cannot be kept."""

    @pytest.fixture
    def target(self) -> SinkTarget:
        raise NotImplementedError("give your subclass a fixture `target`")

    @pytest.fixture
    def sinks(self, target: SinkTarget) -> Iterator[Callable[[], Sink]]:
        """Opens a sink; all are closed at the end."""
        opened: list[Sink] = []

        def open_one() -> Sink:
            opened.append(target.open())
            return opened[-1]

        yield open_one
        for sink in opened:
            sink.close()

    @pytest.fixture
    def sink(self, sinks: Callable[[], Sink]) -> Sink:
        return sinks()

    def test_a_window_lands_whole_and_the_landing_says_so(self, target: SinkTarget, sink: Sink) -> None:
        probe = Probe()
        landing = land(sink, target, 1, probe=probe)
        assert (landing.sink, landing.stream, landing.window) == (sink.id, ORDERS, target.window(1).id)
        assert landing.rows == len(content(1))
        assert Landing.from_json(json.loads(json.dumps(landing.to_json()))) == landing
        assert landing.seconds >= 0
        assert probe.rows == landing.rows, "people are shown as many rows as have landed"
        assert probe.rejects == []
        assert seen(target) == content(1)

    def test_a_landing_is_known_for_its_own_window_and_stream_alone(
        self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink]
    ) -> None:
        assert sink.landed(attempt(target, 1), ORDERS) is None
        landing = land(sink, target, 1)
        for each in (sink, sinks()):
            known = each.landed(attempt(target, 1), ORDERS)
            if self.no_proof:
                assert known is None
            else:
                assert known is not None
                assert identity(known) == identity(landing)
            assert each.landed(attempt(target, 2), ORDERS) is None
            assert each.landed(attempt(target, 1), ITEMS) is None

    def test_windows_land_one_after_another(self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink]) -> None:
        land(sink, target, 1)
        land(sink, target, 2)
        land(sinks(), target, 3)
        assert seen(target) == sorted(target.content_after([content(1), content(2), content(3)]))

    def test_a_window_without_rows_lands(self, target: SinkTarget, sink: Sink) -> None:
        assert land(sink, target, 1, rows=target.rows(ORDERS, [])).rows == 0
        assert seen(target) == []
        land(sink, target, 2)
        landing = land(sink, target, 3, rows=target.rows(ORDERS, []))
        assert (landing.rows, landing.window) == (0, target.window(3).id)
        assert seen(target) == sorted(target.content_after([[], content(2), []]))

    def test_a_window_that_lands_again_leaves_the_content_as_it_was(
        self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink]
    ) -> None:
        first = land(sink, target, 1)
        land(sink, target, 2)
        before = seen(target)
        for each in (sink, sinks()):
            again = land(each, target, 1, epoch=2)
            assert identity(again) == identity(first)
        self.check_same(target, before)

    def test_nothing_is_visible_before_the_publish_hook_and_all_is_at_the_end(
        self, target: SinkTarget, sink: Sink
    ) -> None:
        land(sink, target, 1)
        before, after = content(1), sorted(target.content_after([content(1), content(2)]))
        probe = Probe(look=lambda: seen(target))
        land(sink, target, 2, probe=probe)
        hooks = [hook for hook, _ in probe.hooks]
        assert [hook for hook in hooks if hook != PUBLISH] == [WRITTEN, PUBLISHED]
        assert PUBLISH in hooks[hooks.index(WRITTEN) : hooks.index(PUBLISHED)], "ask for the right to publish last (G4)"
        for hook, visible in probe.hooks:
            assert visible == (after if hook == PUBLISHED else before), f"at {hook}"

    def test_a_process_that_lost_its_lease_publishes_nothing(
        self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink]
    ) -> None:
        land(sink, target, 1)
        with pytest.raises(LeaseLost):
            land(sink, target, 2, probe=Probe(errors={PUBLISH: LeaseLost("another process took over")}))
        assert seen(target) == content(1)
        assert sink.landed(attempt(target, 2), ORDERS) is None
        assert land(sinks(), target, 2, epoch=2).rows == len(content(2))
        assert seen(target) == sorted(target.content_after([content(1), content(2)]))

    @pytest.mark.parametrize("point", [WRITTEN, PUBLISHED])
    def test_a_failure_at_a_fault_point_is_repaired_by_landing_again(
        self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink], point: str
    ) -> None:
        land(sink, target, 1)
        with pytest.raises(SinkUnreachable, match="rehearsed"):
            land(sink, target, 2, probe=Probe(errors={point: SinkUnreachable(f"rehearsed at {point}")}))
        after = sorted(target.content_after([content(1), content(2)]))
        assert seen(target) == (content(1) if point == WRITTEN else after)
        known = sink.landed(attempt(target, 2), ORDERS)
        assert (known is not None) == (point == PUBLISHED and not self.no_proof)
        assert land(sinks(), target, 2, epoch=2).rows == len(content(2))
        if point == WRITTEN:
            assert seen(target) == after
        else:
            self.check_same(target, after)

    def test_a_source_that_fails_while_it_is_read_leaves_nothing(
        self, target: SinkTarget, sink: Sink, sinks: Callable[[], Sink]
    ) -> None:
        land(sink, target, 1)
        rows = failing(target.rows(ORDERS, content(2)), SourceUnreachable("the source is gone"))
        with pytest.raises(HeadwaterError, match="the source is gone"):
            land(sink, target, 2, rows=rows)
        assert seen(target) == content(1)
        land(sinks(), target, 2)
        assert seen(target) == sorted(target.content_after([content(1), content(2)]))

    def test_a_row_that_cannot_be_kept_exactly_is_a_reject_and_the_others_land(
        self, target: SinkTarget, sink: Sink
    ) -> None:
        if self.keeps_all:
            pytest.skip(self.keeps_all)
        probe, rows = Probe(), target.rows_with_one_unkept(ORDERS, content(1))
        if self.stops:
            with pytest.raises(ValueNotKept):
                land(sink, target, 1, rows=rows, probe=probe)
            assert seen(target) == []
            return
        landing = land(sink, target, 1, rows=rows, probe=probe)
        assert landing.rows == len(content(1))
        assert seen(target) == content(1)
        assert [(reject.stream, bool(reject.reason), bool(reject.payload)) for reject in probe.rejects] == [
            (ORDERS, True, True)
        ]
        assert probe.rejects_at_publish == 1, "rejects land before the rows they stood among (G8)"

    def test_without_a_collector_of_rejects_such_a_row_stops_the_landing(self, target: SinkTarget, sink: Sink) -> None:
        if self.keeps_all:
            pytest.skip(self.keeps_all)
        with pytest.raises(ValueNotKept):
            sink.land(without_rejects(attempt(target, 1, Probe())), target.rows_with_one_unkept(ORDERS, content(1)))
        assert seen(target) == []

    def test_every_stream_has_its_own_rows_and_landing(self, target: SinkTarget, sink: Sink) -> None:
        land(sink, target, 1)
        assert seen(target, ITEMS) == []
        items = content(1)[:3]
        landing = land(sink, target, 1, rows=target.rows(ITEMS, items))
        assert (landing.stream, landing.rows) == (ITEMS, 3)
        assert (seen(target), seen(target, ITEMS)) == (content(1), items)
        if not self.no_proof:
            known = [sink.landed(attempt(target, 1), stream) for stream in STREAMS]
            assert [each and (each.stream, each.rows) for each in known] == [(ORDERS, len(content(1))), (ITEMS, 3)]

    def test_no_secret_is_shown(self, target: SinkTarget) -> None:
        opened = target.open_with_secret()
        if opened is None:
            pytest.skip("the settings of this sink hold no secret")
        sink, secret = opened
        texts = [repr(sink), repr(vars(sink)), sink.id]
        try:
            landing = land(sink, target, 1)
        except HeadwaterError as error:
            texts += [str(error), repr(error), error.hint]
        else:
            texts += [repr(landing), json.dumps(landing.to_json())]
        texts += [repr(vars(sink))]
        sink.close()
        assert [text for text in texts if secret in text] == []

    def test_a_sink_can_be_closed_twice_and_what_landed_stays(self, target: SinkTarget, sink: Sink) -> None:
        sink.close()
        land(sink, target, 1)
        sink.close()
        sink.close()
        assert seen(target) == content(1)

    def check_same(self, target: SinkTarget, expected: list[Row]) -> None:
        """Once each, where the sink can tell; otherwise at least once, and nothing else."""
        if self.doubles:
            assert set(seen(target)) == set(expected)
        else:
            assert seen(target) == expected


class Probe(MemoryRejects):
    """The hooks of an attempt: records each call with what readers see then, and raises on request."""

    def __init__(
        self, look: Callable[[], list[Row]] | None = None, errors: dict[str, HeadwaterError] | None = None
    ) -> None:
        super().__init__()
        self._look, self._errors = look, errors or {}
        self.hooks: list[tuple[str, list[Row] | None]] = []
        self.rejects_at_publish = 0
        self.rows = 0

    def reach(self, point: str) -> None:
        self.hooks.append((point, self._look() if self._look else None))
        if point in self._errors:
            raise self._errors[point]

    def publish(self) -> None:
        self.rejects_at_publish = len(self.rejects)
        self.reach(PUBLISH)

    def count(self, rows: int) -> None:
        self.rows += rows


def attempt(target: SinkTarget, number: int, probe: Probe | None = None, epoch: int = 1) -> Attempt:
    """A try at a window. Nothing else in this file knows how an attempt hands its hooks to a sink."""
    probe = probe or Probe()
    return attempt_at(
        target.window(number),
        run=f"run-{number}-{epoch}",
        epoch=epoch,
        faults=probe,
        ensure_lease=probe.publish,
        spark=target.spark,
        progress=probe.count,
        rejects=probe,
    )


def without_rejects(attempt: Attempt) -> Attempt:
    """The same try where nothing takes rejects."""
    return replace(attempt, rejects=None)


def land(
    sink: Sink,
    target: SinkTarget,
    number: int,
    *,
    rows: Rows | None = None,
    probe: Probe | None = None,
    epoch: int = 1,
) -> Landing:
    """Land a window, by default all of its content in the first stream."""
    return sink.land(attempt(target, number, probe, epoch), rows or target.rows(ORDERS, content(number)))


def content(number: int) -> list[Row]:
    """The rows of a window: fewer than its ids, so that a row more has a place."""
    first = (number - 1) * WINDOW_ROWS
    return [(n, f"note {n} of 'ours', \u00fc") for n in range(first, first + WINDOW_ROWS - 3)]


def seen(target: SinkTarget, stream: str = ORDERS) -> list[Row]:
    return sorted(target.read(stream))


def identity(landing: Landing) -> tuple[str, str, str, int]:
    return landing.sink, landing.stream, landing.window, landing.rows


def note_rows(stream: str, content: Sequence[Row], **columns: tuple[pa.DataType, Sequence[object]]) -> Rows:
    """Rows with a key `id`, a text `note` and further columns (type and values each), in two splits."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())]
    fields += [pa.field(name, kind) for name, (kind, _) in columns.items()]
    arrays = [pa.array([n for n, _ in content], pa.int64()), pa.array([note for _, note in content], pa.string())]
    arrays += [pa.array(values, kind) for kind, values in columns.values()]
    table = pa.table(arrays, schema=pa.schema(fields))
    half = table.num_rows // 2
    return memory_rows(stream, (table.slice(0, half), table.slice(half)), ("id",), ("id",))
