"""Several sinks read a source once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.split_cache import cached_splits
from headwater.model.rows import Rows

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class Counted:
    """Notes in a file how often it is read; fails at the end of the first time, if it shall."""

    notes: str
    fails: bool = False

    @property
    def rows(self) -> int:
        return 3

    def read(self, on_reject=None) -> Iterator[pa.RecordBatch]:
        with Path(self.notes).open("a") as file:
            file.write("x")
        yield pa.record_batch([pa.array([1, 2])], schema=SCHEMA)
        if self.fails and Path(self.notes).read_text() == "x":
            raise OSError("gone")
        yield pa.record_batch([pa.array([3])], schema=SCHEMA)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def rows(*splits: Counted) -> Rows:
    return Rows("orders", SCHEMA, splits=splits)


def numbers(split) -> list[int]:
    return [n for batch in pickle.loads(pickle.dumps(split)).read() for n in batch.column(0).to_pylist()]  # noqa: S301


def test_the_second_sink_reads_what_the_first_has_read(notes: Path):
    with cached_splits(2, [rows(Counted(str(notes)))]) as (cached,):
        assert [numbers(cached.splits[0]) for _ in range(3)] == [[1, 2, 3]] * 3
    assert notes.read_text() == "x"


def test_a_single_sink_keeps_nothing(notes: Path):
    with cached_splits(1, [rows(Counted(str(notes)))]) as (cached,):
        assert isinstance(cached.splits[0], Counted)


def test_what_was_read_in_part_is_read_again(notes: Path):
    with cached_splits(2, [rows(Counted(str(notes), fails=True))]) as (cached,):
        with pytest.raises(OSError, match="gone"):
            numbers(cached.splits[0])
        next(iter(cached.splits[0].read()))
        assert numbers(cached.splits[0]) == numbers(cached.splits[0]) == [1, 2, 3]
    assert notes.read_text() == "xxx"


def test_nothing_is_left_and_a_folder_that_is_gone_is_no_error(notes: Path):
    with cached_splits(2, [rows(Counted(str(notes)))]) as (cached,):
        numbers(cached.splits[0])
        folder = Path(cached.splits[0].path).parent
        assert [path.name for path in folder.iterdir()] == ["0"]
    assert not folder.exists()
    assert numbers(cached.splits[0]) == [1, 2, 3]
    assert notes.read_text() == "xx"
