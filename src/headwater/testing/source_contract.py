"""The promises of a source as a test suite.

Subclass `SourceContract` and give it a fixture `origin`; pytest does the rest:

    class TestMySource(SourceContract):
        @pytest.fixture
        def origin(self, tmp_path):
            return MyOrigin(tmp_path)
"""

from __future__ import annotations

import itertools
import json
import pickle
import random
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest

from headwater.model.errors import BadPosition, SourceUnreachable
from headwater.model.position.marks import Mark
from headwater.model.position.window import Window
from headwater.model.protocols.source import Abandons, Acknowledges, IsolatesStreams, Source
from headwater.testing.follower import (
    Content,
    Follower,
    SourceOrigin,
    add,
    ids_by_stream,
    plan_next,
    read_split,
    stored,
)
from headwater.testing.marks import check_json_round_trip

__all__ = ["SourceContract", "SourceOrigin"]


class SourceContract:
    """What every source has to keep; the names of the tests are the promises."""

    latest_brings_unseen: ClassVar[str] = ""
    """Why a rewind to `latest` brings rows that no plan has seen yet. Empty: it passes over them."""

    @pytest.fixture
    def origin(self) -> SourceOrigin:
        raise NotImplementedError("give your subclass a fixture `origin`")

    @pytest.fixture
    def sources(self, origin: SourceOrigin) -> Iterator[Callable[[], Source]]:
        """Opens a source; all are closed at the end."""
        opened: list[Source] = []

        def open_one() -> Source:
            opened.append(origin.open())
            return opened[-1]

        yield open_one
        for source in opened:
            source.close()

    @pytest.fixture
    def follower(self, origin: SourceOrigin, sources: Callable[[], Source]) -> Follower:
        return Follower(origin, sources)

    def test_an_empty_source_brings_no_row_and_comes_to_rest(self, follower: Follower) -> None:
        assert follower.catch_up() == {}
        assert follower.plan().window is None

    def test_a_window_brings_exactly_the_rows_that_are_there(self, origin: SourceOrigin, follower: Follower) -> None:
        append_everywhere(origin, 1)
        assert follower.catch_up() == expected(origin, 1)

    def test_a_window_that_is_read_again_brings_the_same_rows(
        self, origin: SourceOrigin, follower: Follower, sources: Callable[[], Source]
    ) -> None:
        for number in (1, 2):
            append_everywhere(origin, 2 * number - 1)
            window = follower.next_window()
            first = follower.read(window)
            assert follower.read(window) == first
            fresh = Follower(origin, sources, follower.mark)
            if fresh.can_read(window):
                assert fresh.read(window) == first
            append_everywhere(origin, 2 * number)
            assert follower.read(window) == first, "what arrived later is no part of the window (G5)"
            late = Follower(origin, sources, follower.mark)
            if late.can_read(window):
                assert late.read(window) == first
            follower.advance(window)
            follower.catch_up()

    def test_a_window_given_up_comes_whole_in_the_next_plan(
        self, origin: SourceOrigin, follower: Follower, sources: Callable[[], Source]
    ) -> None:
        if not isinstance(follower.source, Abandons):
            pytest.skip("every window of this source can be read again")
        append_everywhere(origin, 1)
        window = follower.next_window()
        follower.read(window)
        follower.source.close()
        fresh = Follower(origin, sources, follower.mark)
        assert not fresh.can_read(window), "the contract expects a first window that ends with its process"
        assert fresh.catch_up() == expected(origin, 1)

    def test_windows_chain_and_bring_only_what_is_new(self, origin: SourceOrigin, follower: Follower) -> None:
        append_everywhere(origin, 1)
        follower.catch_up()
        follower.restart()
        for number in (2, 3):
            append_everywhere(origin, number)
            assert follower.catch_up() == only(origin, number)
            assert follower.has_nothing_new()
            assert follower.has_nothing_new()

    def test_marks_grow_and_round_trip_through_json(self, origin: SourceOrigin, follower: Follower) -> None:
        marks: list[Mark] = []
        for number in (1, 2, 3):
            append_everywhere(origin, number)
            follower.catch_up()
            assert follower.mark is not None
            marks.append(follower.mark)
        for each in (*marks, *(window.end for window in follower.windows)):
            check_json_round_trip(each)
            assert str(each)
        for older, newer in itertools.pairwise(marks):
            assert newer.comparable(older)
            assert newer.covers(older)
            assert not older.covers(newer)
            assert older.join(newer) == newer.join(older) == newer
        for window in follower.windows:
            assert window.start is None or window.end.covers(window.start)
            assert Window.from_json(json.loads(json.dumps(window.to_json()))).id == window.id
        assert len({window.id for window in follower.windows}) == len(follower.windows)

    def test_splits_can_be_sent_to_workers_and_read_again(self, origin: SourceOrigin, follower: Follower) -> None:
        append_everywhere(origin, 1)
        window = follower.next_window()
        with follower.source.read(window) as streams:
            for rows in streams:
                if rows.splits is None:
                    pytest.skip("these rows are read by Spark alone")
                for split in rows.splits:
                    sent = pickle.loads(pickle.dumps(split))  # noqa: S301 - as to a worker
                    first = read_split(sent, rows.schema)
                    assert read_split(sent, rows.schema).equals(first)
                    assert read_split(split, rows.schema).equals(first)
                    assert split.rows is None or split.rows >= 0

    def test_no_secret_is_shown(self, origin: SourceOrigin, follower: Follower) -> None:
        if not origin.secret:
            pytest.skip("the settings of this source hold no secret, or none that its server asks for")
        append_everywhere(origin, 1)
        source = follower.source
        plan = plan_next(source, None, origin.lease)
        assert plan.window is not None
        texts = [source.address, repr(source), repr(vars(source)), repr(plan), str(plan.window)]
        with source.read(plan.window) as streams:
            for rows in streams:
                texts += [repr(rows), *(repr(split) for split in rows.splits or ())]
        assert [text for text in texts if origin.secret in text] == []

    @pytest.mark.parametrize("seed", [1, 2])
    def test_all_windows_together_bring_every_row_once(
        self, origin: SourceOrigin, follower: Follower, seed: int
    ) -> None:
        chance = random.Random(seed)  # noqa: S311 - repeatable on purpose
        appended: Content = {}
        content: Content = {}
        following = 1
        for _ in range(8):
            for stream in chance.choices(origin.streams, k=chance.randrange(3)):
                ids = list(range(following, following + chance.randrange(1, 6)))
                following += len(ids)
                origin.append(stream, ids)
                add(appended, {stream: ids})
            if chance.random() < 0.7:
                add(content, follower.cycle())
            if chance.random() < 0.3:
                follower.restart()
        add(content, follower.catch_up())
        assert {stream: sorted(ids) for stream, ids in content.items()} == appended

    def test_start_brings_everything_again(self, origin: SourceOrigin, follower: Follower) -> None:
        append_everywhere(origin, 1)
        follower.catch_up()
        append_everywhere(origin, 2)
        follower.rewind("start")
        assert follower.catch_up() == expected(origin, 2)

    def test_latest_brings_only_what_comes_afterwards(self, origin: SourceOrigin, follower: Follower) -> None:
        append_everywhere(origin, 1)
        follower.catch_up()
        append_everywhere(origin, 2)
        follower.rewind("latest")
        assert follower.catch_up() == (only(origin, 2) if self.latest_brings_unseen else {})
        append_everywhere(origin, 3)
        assert follower.catch_up() == only(origin, 3)

    @pytest.mark.parametrize("text", ["no such place", "\N{SNOWMAN}", "-"])
    def test_a_position_that_makes_no_sense_is_refused(
        self, origin: SourceOrigin, follower: Follower, text: str
    ) -> None:
        append_everywhere(origin, 1)
        follower.catch_up()
        with pytest.raises(BadPosition) as caught:
            follower.source.position(text, follower.mark)
        assert caught.value.hint

    def test_an_acknowledgement_may_be_repeated(self, origin: SourceOrigin, follower: Follower) -> None:
        if not isinstance(follower.source, Acknowledges):
            pytest.skip("this source waits for no acknowledgement")
        append_everywhere(origin, 1)
        follower.catch_up()
        assert follower.mark is not None
        for _ in range(2):
            follower.source.acknowledge(follower.mark)
        follower.restart()
        assert isinstance(follower.source, Acknowledges)
        follower.source.acknowledge(follower.mark)
        append_everywhere(origin, 2)
        assert follower.catch_up() == only(origin, 2)

    def test_a_window_taken_apart_is_two_that_hold_what_the_whole_holds(
        self, origin: SourceOrigin, follower: Follower, sources: Callable[[], Source]
    ) -> None:
        source = follower.source
        if not isinstance(source, IsolatesStreams) or len(origin.streams) == 1:
            pytest.skip("the streams of this source do not move on their own")
        append_everywhere(origin, 1)
        follower.catch_up()
        append_everywhere(origin, 2)
        window = follower.next_window()
        everything, own = follower.read(window), frozenset(origin.streams[:1])
        parts = source.apart(window, own)
        assert parts is not None
        part, rest = (stored(each) for each in parts)
        again = Follower(origin, sources, follower.mark)
        for each in (follower, again):
            assert each.read(part) == {stream: rows for stream, rows in everything.items() if stream in own}
            assert each.read(rest) == {stream: rows for stream, rows in everything.items() if stream not in own}
        assert rest.end.join(part.end) == window.end
        follower.advance(rest)
        assert follower.catch_up() == ids_by_stream(origin, {stream: everything[stream] for stream in own})

    def test_a_plan_without_a_stream_leaves_its_rows_to_a_later_one(
        self, origin: SourceOrigin, follower: Follower
    ) -> None:
        source = follower.source
        if not isinstance(source, IsolatesStreams) or len(origin.streams) == 1:
            pytest.skip("the streams of this source do not move on their own")
        append_everywhere(origin, 1)
        follower.catch_up()
        append_everywhere(origin, 2)
        left = origin.streams[0]
        window = source.plan(follower.mark, skip=frozenset([left])).window
        assert window is not None
        assert set(follower.read(stored(window))) == set(origin.streams) - {left}
        follower.advance(window)
        assert source.plan(follower.mark, skip=frozenset([left])).window is None
        assert follower.catch_up() == {left: ids_of(origin, left, 2)}

    def test_a_source_can_be_closed_twice_and_used_again(self, origin: SourceOrigin, follower: Follower) -> None:
        follower.source.close()
        append_everywhere(origin, 1)
        assert follower.catch_up() == expected(origin, 1)
        follower.source.close()
        follower.source.close()
        append_everywhere(origin, 2)
        assert follower.catch_up() == only(origin, 2)

    def test_a_source_out_of_reach_says_so_without_its_secret(self, origin: SourceOrigin) -> None:
        source, secret = origin.open_unreachable()
        with pytest.raises(SourceUnreachable) as caught:
            plan_next(source, None, origin.lease)
        source.close()
        error = caught.value
        texts = [source.address, repr(source), repr(vars(source)), str(error), repr(error), error.hint]
        assert source.address
        assert error.hint
        assert not secret or [text for text in texts if secret in text] == []


def ids_of(origin: SourceOrigin, stream: str, number: int) -> list[int]:
    """What `append_everywhere` adds to a stream: three rows, with other ids in every stream and call."""
    first = 100 * number + 10 * origin.streams.index(stream)
    return [first, first + 1, first + 2]


def append_everywhere(origin: SourceOrigin, number: int) -> None:
    for stream in origin.streams:
        origin.append(stream, ids_of(origin, stream, number))


def only(origin: SourceOrigin, number: int) -> Content:
    """What one call of `append_everywhere` has appended."""
    return {stream: ids_of(origin, stream, number) for stream in origin.streams}


def expected(origin: SourceOrigin, count: int) -> Content:
    """All that so many calls of `append_everywhere` have appended."""
    return {
        stream: [n for each in range(1, count + 1) for n in ids_of(origin, stream, each)] for stream in origin.streams
    }
