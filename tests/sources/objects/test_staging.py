"""The listing against the ledger: whatever happens to objects, all of it is queued, once, and blocks never hide a change."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.position.marks import ObjectsMark
from headwater.sources.objects.listing_diff import diff_listing
from headwater.sources.objects.staging import GenerationCounter, StagingRun, stage
from headwater.sources.objects.tuning import Tuning
from tests.sources.objects.ledger import PipelineLedger, Version, pages

_keys = st.text(st.sampled_from("ab/ %é😀~"), min_size=1, max_size=2)
_versions = st.tuples(st.sampled_from(["e1", "e2"]), st.integers(0, 3), st.integers(0, 2))
_listings = st.lists(st.dictionaries(_keys, _versions, max_size=20), min_size=1, max_size=6)


class Oracle:
    """Plain dictionaries: what has been seen of each key, and what waits."""

    def __init__(self) -> None:
        self.seen: dict[str, Version] = {}
        self.landed: set[str] = set()

    def look(self, objects: dict[str, Version]) -> dict[str, Version]:
        new = {key: version for key, version in objects.items() if self.seen.get(key) != version}
        self.seen = dict(objects)
        return new


_SMALL = Tuning(block_keys=4, part_keys=2, chunk_rows=5, lookup_ranges=2)


@given(_listings, st.integers(1, 4), st.booleans())
@settings(max_examples=60)
def test_every_look_queues_exactly_what_is_new(
    listings: list[dict[str, Version]],
    page: int,
    lazy: bool,  # noqa: FBT001 - the queue is not read in between, so changes pile up
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book, oracle, mark = PipelineLedger(Path(folder)), Oracle(), ObjectsMark(0)
        wanted: dict[str, Version] = {}
        for listing in listings:
            wanted = {key: version for key, version in wanted.items() if key in listing} | oracle.look(listing)
            _look(book, listing, page, mark)
            if lazy:
                continue
            assert _queued(book, mark) == wanted
            mark = ObjectsMark(book.ledger.newest())
            wanted = {}
        assert _queued(book, mark) == wanted


@given(_listings, st.integers(1, 4))
@settings(max_examples=40)
def test_rows_that_landed_are_known_to_be_there(listings: list[dict[str, Version]], page: int) -> None:
    """What replaces or removes rows depends on it: an object whose rows once landed has them still, unless removed."""
    with tempfile.TemporaryDirectory() as folder:
        book, mark = PipelineLedger(Path(folder)), ObjectsMark(0)
        landed: set[str] = set()
        for listing in listings:
            _look(book, listing, page, mark, deleted="remove_rows")
            for row in _rows(book, mark):
                assert row["earlier"] == (row["key"] in landed), row["key"]
                assert (row["state"] == "gone") == (row["key"] not in listing)
            landed |= {row["key"] for row in _rows(book, mark) if row["state"] == "read"}
            mark = ObjectsMark(book.ledger.newest())


@given(_listings, st.integers(1, 4))
@settings(max_examples=40)
def test_a_second_look_at_the_same_finds_nothing(listings: list[dict[str, Version]], page: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book, mark = PipelineLedger(Path(folder)), ObjectsMark(0)
        for listing in listings:
            _look(book, listing, page, mark)
            assert list(diff_listing(pages(listing, 3), book.ledger, tuning=_SMALL)) == []


@given(st.lists(st.integers(0, 10), max_size=40), st.integers(1, 5), st.integers(1, 20), st.integers(1, 7))
def test_windows_keep_to_their_limits(sizes: list[int], objects: int, most: int, page: int) -> None:
    numbering, generations = GenerationCounter(3, objects, most), []
    for begin in range(0, len(sizes), page):
        generations += numbering.assign(pa.array(sizes[begin : begin + page], pa.int64())).to_pylist()
    assert generations == sorted(generations)
    assert set(generations) == set(range(3, 3 + len(set(generations))))
    for generation in set(generations):
        batch = [size for size, number in zip(sizes, generations, strict=True) if number == generation]
        assert len(batch) <= objects
        assert sum(batch) <= most or len(batch) == 1


def test_only_the_end_is_listed_where_keys_grow(tmp_path: Path) -> None:
    book = PipelineLedger(tmp_path)
    first = {f"2026-03-0{day}": ("e", 1, 1) for day in range(1, 6)}
    _look(book, first, 2, ObjectsMark(0))
    after = book.ledger.last_key()
    assert after == "2026-03-05"
    grown = {**first, "2026-03-06": ("e", 1, 1)}
    differences = list(diff_listing(pages(grown, 2, after), book.ledger, after, _SMALL))
    assert [one.changed["key"].to_pylist() for one in differences] == [["2026-03-06"]]
    assert not any(one.gone.num_rows for one in differences)


def _look(book: PipelineLedger, objects: dict[str, Version], page: int, mark: ObjectsMark, **more: object) -> None:
    differences = diff_listing(pages(objects, page), book.ledger, tuning=_SMALL)
    stage(
        differences,
        StagingRun(book.ledger, book.lease, "run"),
        mark,
        ObjectsSourceSettings(url="s3://b/", max_objects=3, **more),
    )


def _rows(book: PipelineLedger, mark: ObjectsMark) -> list[dict[str, object]]:
    return [row for page in book.ledger.window(mark.generation, 1 << 60) for row in page.to_pylist()]


def _queued(book: PipelineLedger, mark: ObjectsMark) -> dict[str, Version]:
    return {
        row["key"]: (row["etag"], row["size"], row["modified"]) for row in _rows(book, mark) if row["state"] == "read"
    }
