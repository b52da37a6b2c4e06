"""Listings made by hand, and the ledger of a pipeline to compare them with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from headwater.model.bookmarks import HasLedger, Ledger
from headwater.model.progress import Lease
from headwater.progress.sqlite import SqliteProgress
from headwater.sources.objects.listing_diff import LISTING

Version = tuple[str, int, int]  # etag, size, modified


class PipelineLedger:
    """A ledger in a file, and a lease to write in it."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteProgress(folder / "progress.db")
        assert isinstance(self.store, HasLedger)
        self.ledger: Ledger = self.store.ledger("p")
        self.lease: Lease = self.store.acquire("p", "me", 3600)


def pages(objects: Mapping[str, Version], size: int, after: str | None = None) -> Iterator[pa.RecordBatch]:
    """As a container would list them."""
    keys = sorted((key for key in objects if after is None or key > after), key=lambda key: key.encode())
    for begin in range(0, len(keys), size):
        part = keys[begin : begin + size]
        rows = [
            {"key": key, "etag": objects[key][0], "size": objects[key][1], "modified": objects[key][2]} for key in part
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=LISTING)
