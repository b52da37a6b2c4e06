"""Batches come back from memory and from disk as they were added."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater.storage.spill import Spill, read_spill

BATCHES = [pa.record_batch({"n": [1, 2], "s": ["a", None]}), pa.record_batch({"n": [3], "s": ["c"]})]
SCHEMA = BATCHES[0].schema


@pytest.mark.parametrize("memory_bytes", [0, BATCHES[0].nbytes, 1 << 20], ids=["disk", "both", "memory"])
def test_batches_come_back_in_order(memory_bytes: int) -> None:
    spill = Spill(SCHEMA, memory_bytes=memory_bytes)
    for batch in BATCHES:
        spill.add(batch)
    assert list(spill.batches()) == BATCHES
    assert (spill.file_bytes > 0) == (memory_bytes < 1 << 20)


@pytest.mark.parametrize("named", [False, True])
def test_a_spill_without_rows_has_no_batches(tmp_path: Path, named: bool) -> None:  # noqa: FBT001 - a parameter
    spill = Spill(SCHEMA, tmp_path / "a" if named else None, memory_bytes=0)
    spill.add(BATCHES[0].slice(0, 0))
    assert list(spill.batches()) == []
    spill.publish(tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_named_file_is_found_whole_once_it_is_published(tmp_path: Path) -> None:
    spill, name = Spill(SCHEMA, tmp_path / "hidden"), tmp_path / "name"
    for batch in BATCHES:
        spill.add(batch)
    assert read_spill(name) is None
    spill.publish(name)
    assert list(read_spill(name) or ()) == list(read_spill(name) or ()) == list(spill.batches()) == BATCHES
    spill.remove()
    assert read_spill(name) is None
