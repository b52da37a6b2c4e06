"""The ledger of objects: one bookmark per object, and how a source and a progress store speak about them.

Every bookmark carries the generation in which it was staged. The mark is a generation too: what is at or below it has
landed (or has failed, and says so), what is above it waits to be read. So staging is one write per object, and to move
the mark is to land all objects of a window at once. A rewind needs no write here: what is above the mark waits again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from headwater.model.errors import InputError
from headwater.model.progress import Lease

if TYPE_CHECKING:
    import pyarrow as pa

# read: to be read, or read. gone: the object is no longer there; its rows may be removed. failed: could not be read,
# and is tried again at `retry_at`. aside: failed too often; stays so until the object changes or an operator retries it.
State = Literal["read", "gone", "failed", "aside"]


@dataclass(frozen=True)
class FailedObject:
    """What a bookmark says from now on of an object that could not be read."""

    key: str  # within the source's url: the object's whole key in its bucket, or its path below the folder
    state: State
    tries: int  # that failed, of this version
    reason: str
    retry_at: dt.datetime | None = None


@dataclass(frozen=True)
class Block:
    """A range of keys whose listing had this digest when all of it was in the ledger: an equal one need not be compared."""

    first: str  # the least key; the range ends where the next block begins
    digest: bytes  # of the whole, and behind it what else the source wants to keep
    objects: int


KeyRange = tuple[str, str | None]  # from a key up to, not including, another; None: to the end


class Ledger(Protocol):
    """The bookmarks of one pipeline, ordered by the bytes of their keys.

    Batches of bookmarks are Arrow, with the columns of `BOOKMARK_COLUMNS`. What writes is fenced by the lease, in the
    same transaction: raises LeaseLost, and nothing is written (G4).
    """

    def newest(self) -> int:
        """The greatest generation that was ever staged; 0: none."""

    def waiting(self, after: int) -> int | None:
        """The least generation above this one that has a bookmark in state read or gone."""

    def blocks(self) -> Iterator[Block]:
        """All blocks, in the order of their keys, as a stream."""

    def between(self, ranges: Sequence[KeyRange]) -> pa.Table:
        """The bookmarks of these ranges, which are in order and do not overlap."""

    def get(self, keys: Sequence[str]) -> pa.Table:
        """The bookmarks of these keys, as far as there are any."""

    def covering(self, keys: Sequence[str]) -> Sequence[Block]:
        """The blocks whose ranges hold these keys, each once; a key before the first block has none."""

    def stage(self, lease: Lease, staged: pa.Table, blocks: Sequence[Block]) -> None:
        """Write bookmarks, and blocks, over those with the same keys. Durable."""

    def window(self, after: int, up_to: int) -> Iterator[pa.Table]:
        """The bookmarks of these generations in state read or gone, in the order of their keys, page by page."""

    def due(self, moment: dt.datetime, limit: int) -> pa.Table:
        """Failed bookmarks whose time has come."""

    def postpone(self, lease: Lease, failed: Iterable[FailedObject]) -> None:
        """Note state, reason, tries and retry_at of these, and that they may have brought rows (to one of several sinks)."""

    def try_again(self, lease: Lease, keys: Sequence[str], moment: dt.datetime) -> None:
        """Let these failed ones be due at that moment, with all their tries before them again."""

    def last_key(self) -> str | None:
        """The greatest key of all bookmarks."""


@dataclass(frozen=True)
class Counted:
    """How many bookmarks are alike."""

    state: State
    waiting: bool  # above the mark
    objects: int
    size: int  # of all of them, in bytes


class BookmarkAdmin(Ledger, Protocol):
    """The ledger as commands look at it and change it."""

    def browse(self, after: str | None, limit: int, states: Sequence[State], prefix: str = "") -> pa.Table:
        """The next bookmarks behind a key, in the order of keys."""

    def counts(self, generation: int) -> Sequence[Counted]:
        """How many there are, by state and by whether they are above this generation."""

    def forget(self, lease: Lease, keys: Sequence[str], landed: int) -> None:
        """As if these objects were gone: if they are not, the next look finds them new.

        What is known of rows that they brought is kept; generations up to `landed` have landed.
        """


@runtime_checkable
class HasLedger(Protocol):
    """A progress store that keeps bookmarks too."""

    def ledger(self, pipeline: str) -> BookmarkAdmin: ...


def no_ledger(address: str) -> InputError:
    """For a store that keeps no bookmarks."""
    return InputError(
        f"{address} keeps no bookmarks, and a source of objects needs them",
        hint="write progress: sqlite:///… or postgresql://… in headwater.yaml",
    )


# Columns of a batch of bookmarks, and their Arrow types by name (Arrow itself is not imported for an idle poll).
BOOKMARK_COLUMNS = {
    "key": "string",
    "etag": "string",
    "size": "int64",
    "modified": "int64",  # microseconds since 1970, UTC
    "generation": "int64",
    "state": "string",
    "earlier": "bool",
    "tries": "int32",
    "reason": "string",
    "retry_at": "int64",  # as `modified`; NULL: never
    "run": "string",
}
