"""Thresholds of the objects source: values for tests and experiments, not settings for users."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """The defaults were measured; tests pass small values to reach every branch."""

    # Listings that are compared with the ledger
    block_keys: int = 1024  # of one block; a block with twice as many is cut
    part_keys: int = 16  # with one digest within a block, after the digest of the whole
    chunk_rows: int = 1 << 14  # of a listing that are compared together: few enough for a processor's cache
    lookup_ranges: int = 256  # changed ranges that are looked up in the ledger together
    lookup_rows: int = 20_000
    transaction_rows: int = 20_000  # bookmarks in one transaction
    # Notifications
    saved_notifications: int = 1_000  # fewer are read again, which is cheaper than a window without rows
    # Objects that are read
    memory_bytes: int = 64 << 20  # of one object; larger ones go to a temporary file
    decode_bytes: int = 4 << 20  # of small objects that are decoded together
    large_bytes: int = 32 << 20  # of one object that is decoded piece by piece
    infer_bytes: int = 8 << 20  # of small objects whose columns are inferred together
    range_bytes: int = 8 << 20  # of one request within a large object
    csv_block_bytes: tuple[int, ...] = (8 << 20, 64 << 20, 512 << 20)  # the next one where a record is longer
    csv_scan_bytes: int = 8 << 20  # whose quotes are checked at once


DEFAULT = Tuning()
