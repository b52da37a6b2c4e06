"""Operations on bookmarks: list, forget, retry, export, import. They write under the pipeline's lease."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headwater.engine.journal import open_journal
from headwater.model.bookmarks import Block, BookmarkAdmin, State
from headwater.model.errors import InputError, UnknownName
from headwater.model.position.marks import ObjectsMark
from headwater.model.progress import Lease
from headwater.model.protocols.store import Store
from headwater.progress.bookmark_file import Bookmark

if TYPE_CHECKING:
    import pyarrow as pa

Standing = Literal["landed", "pending", "failed", "aside", "gone"]
STANDINGS: Sequence[Standing] = ("landed", "pending", "failed", "aside", "gone")
_STATES: Mapping[str, State] = {
    "landed": "read",
    "pending": "read",
    "failed": "failed",
    "aside": "aside",
    "gone": "gone",
}
_PAGE = 10_000
_EVERYWHERE = (Block("", b"", 0),)  # a block that no listing equals: the next look compares what lies in it


class HasBookmarks(Protocol):
    """What these operations need of an objects source."""

    @property
    def topic(self) -> str:
        """What all its objects have in common: the bucket, or the folder."""

    def listing(self) -> Iterator[pa.RecordBatch]:
        """The objects that are there now."""


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    known: int  # objects that count as read now
    newer: int  # … that have changed since their bookmark, and will be read
    missing: int  # … that are not there any more
    others: int  # bookmarks of other topics


class PipelineBookmarks:
    """The bookmarks of one pipeline."""

    def __init__(
        self, name: str, source: HasBookmarks, ledger: BookmarkAdmin, store: Store, *, owner: str, lease_seconds: float
    ) -> None:
        self._name, self._source, self._ledger = name, source, ledger
        self._store, self._owner, self._lease_seconds = store, owner, lease_seconds

    @property
    def topic(self) -> str:
        return self._source.topic

    def all(self, standings: Sequence[Standing] = ("landed",), prefix: str = "") -> Iterator[dict[str, Any]]:
        """Rows of the ledger with their `standing`, in the order of keys, page by page."""
        mark, after = self._generation(), None
        states = sorted({_STATES[standing] for standing in standings})
        while True:
            page = self._ledger.browse(after, _PAGE, states, prefix)
            for row in page.to_pylist():
                bookmark = _with_standing(row, mark)
                if bookmark["standing"] in standings:
                    yield bookmark
            if page.num_rows < _PAGE:
                return
            after = page["key"][-1].as_py()

    def get(self, key: str) -> dict[str, Any]:
        rows = self._ledger.get([key]).to_pylist()
        if not rows:
            raise UnknownName(
                f"{self._name}: no bookmark of {key!r}", hint=f"see them all: headwater bookmarks list {self._name}"
            )
        return _with_standing(rows[0], self._generation())

    def count(self) -> dict[Standing, tuple[int, int]]:
        """How many objects there are of each standing, and their bytes."""
        counts: dict[Standing, tuple[int, int]] = dict.fromkeys(STANDINGS, (0, 0))
        for counted in self._ledger.counts(self._generation()):
            standing = _standing(counted.state, waiting=counted.waiting)
            objects, size = counts[standing]
            counts[standing] = (objects + counted.objects, size + counted.size)
        return counts

    def remove(self, keys: Sequence[str]) -> None:
        """Forget objects: the next cycle reads those again that still exist."""
        for key in keys:
            self.get(key)
        with self._writing() as lease:
            self._ledger.forget(lease, keys, self._landed())

    def try_again(self, keys: Sequence[str]) -> int:
        """Let the next cycle retry objects that failed; without keys all of them. Returns how many."""
        chosen = list(keys) or [row["key"] for row in self.all(("failed", "aside"))]
        for key in keys:
            if self.get(key)["standing"] not in ("failed", "aside"):
                raise InputError(f"{self._name}: {key} has not failed")
        with self._writing() as lease:
            self._ledger.try_again(lease, chosen, dt.datetime.now(dt.UTC))
        return len(chosen)

    def export(self) -> Iterator[Bookmark]:
        """What has landed, in the shape that other tools know: topic, partition, offset, timestamp, metadata."""
        for row in self.all():
            metadata = {name: row[name] for name in ("etag", "size", "generation")}
            yield Bookmark(self.topic, row["key"], 0, row["modified"], metadata)

    def take_in(self, bookmarks: Sequence[Bookmark]) -> Imported:
        """Count objects as read that bookmarks name, unless they have changed since."""
        own = {bookmark.partition: bookmark for bookmark in bookmarks if bookmark.topic == self.topic}
        known, newer = 0, 0
        with self._writing() as lease:
            for batch in self._source.listing():
                rows = [row for row in batch.to_pylist() if row["key"] in own]
                read = [row for row in rows if _is_read(row, own[row["key"]])]
                known, newer = known + len(read), newer + len(rows) - len(read)
                if read:
                    self._ledger.stage(lease, _landed_table(read, self._generation()), _EVERYWHERE)
        return Imported(known, newer, len(own) - known - newer, len(bookmarks) - len(own))

    @contextmanager
    def _writing(self) -> Iterator[Lease]:
        with open_journal(self._store, self._name, self._owner, self._lease_seconds) as journal:
            journal.require_finished()
            yield journal.lease

    def _mark(self) -> ObjectsMark:
        mark = self._store.load(self._name).mark
        return mark if isinstance(mark, ObjectsMark) else ObjectsMark(0)

    def _generation(self) -> int:
        return self._mark().generation

    def _landed(self) -> int:
        mark = self._mark()
        return max(mark.generation, mark.reached)


def _with_standing(row: dict[str, Any], mark: int) -> dict[str, Any]:
    standing = _standing(row["state"], waiting=row["generation"] > mark)
    return {**row, "standing": standing, "modified": _moment(row["modified"]), "retry_at": _moment(row["retry_at"])}


def _standing(state: State, *, waiting: bool) -> Standing:
    if state != "read":
        return state
    return "pending" if waiting else "landed"


def _moment(microseconds: int | None) -> dt.datetime | None:
    if microseconds is None:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


def _is_read(row: dict[str, Any], bookmark: Bookmark) -> bool:
    """By the etag where the bookmark has one; else, as other tools compare, by time."""
    etag = bookmark.metadata.get("etag")
    if etag is not None:
        return bool(row["etag"] == etag)
    modified = _moment(row["modified"])
    return modified is not None and modified <= bookmark.timestamp


def _landed_table(rows: Sequence[dict[str, Any]], generation: int) -> pa.Table:
    import pyarrow as pa

    from headwater.progress.ledger import bookmark_schema

    more = {"state": "read", "earlier": False, "tries": 0, "reason": "", "retry_at": None, "run": "import"}
    return pa.Table.from_pylist([{**row, **more, "generation": generation} for row in rows], schema=bookmark_schema())
