"""The bookmarks of the SQL stores: tables `headwater_bookmarks` and `headwater_bookmark_blocks`, for anyone to query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headwater.model.bookmarks import BOOKMARK_COLUMNS, Block, Counted, FailedObject, KeyRange, State
from headwater.model.progress import Lease
from headwater.progress.migrations import Execute, Row

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_PAGE_ROWS = 20_000
_NAMES = ", ".join(BOOKMARK_COLUMNS)
_FROM = f"SELECT {_NAMES} FROM headwater_bookmarks WHERE pipeline = :pipeline"  # noqa: S608 - constant
_KEY, _BLOCK_KEY = ("pipeline", "key"), ("pipeline", "first_key")


class Run(Protocol):
    """A transaction of the store."""

    def __call__(self, work: Callable[[Execute], T]) -> T: ...


@dataclass(frozen=True)
class SqlLedger:
    """One pipeline's bookmarks in a SQL store. Every page is one transaction: the store is free in between."""

    pipeline: str
    _run: Run
    _fenced: Callable[[Lease, Callable[[Execute], None]], None]

    def newest(self) -> int:
        """The greatest generation that was ever staged; 0: none."""
        rows = self._query("SELECT max(generation) FROM headwater_bookmarks WHERE pipeline = :pipeline")
        return _integer(rows[0][0] or 0)

    def waiting(self, after: int) -> int | None:
        """The least generation above this one that has a bookmark in state read or gone."""
        rows = self._query(
            "SELECT generation FROM headwater_bookmarks WHERE pipeline = :pipeline AND generation > :after "
            "AND state IN ('read', 'gone') ORDER BY generation LIMIT 1",
            after=after,
        )
        return _integer(rows[0][0]) if rows else None

    def blocks(self) -> Iterator[Block]:
        """All blocks, in the order of their keys."""
        after, sign = "", ">="
        while True:
            page = self._query(
                f"SELECT first_key, digest, objects FROM headwater_bookmark_blocks WHERE pipeline = :pipeline "  # noqa: S608 - constants
                f"AND first_key {sign} :after ORDER BY first_key LIMIT {_PAGE_ROWS}",
                after=after,
            )
            for first, digest, objects in page:
                yield Block(str(first), bytes(digest), _integer(objects))  # type: ignore[call-overload]
            if len(page) < _PAGE_ROWS:
                return
            after, sign = str(page[-1][0]), ">"

    def between(self, ranges: Sequence[KeyRange]) -> pa.Table:
        """The bookmarks of these ranges, which are in order and do not overlap."""

        def read(execute: Execute) -> list[Row]:
            bounded = [
                {"pipeline": self.pipeline, "first": first, "end": end} for first, end in ranges if end is not None
            ]
            rows = execute.each(f"{_FROM} AND key >= :first AND key < :end ORDER BY key", bounded)
            for first in (first for first, end in ranges if end is None):  # at most the last one
                rows += execute(f"{_FROM} AND key >= :first ORDER BY key", {"pipeline": self.pipeline, "first": first})
            return rows

        return _table(self._run(read))

    def get(self, keys: Sequence[str]) -> pa.Table:
        """The bookmarks of these keys; keys without a bookmark are left out."""
        return _table(self._query_each(keys, f"{_FROM} AND key = :key"))

    def covering(self, keys: Sequence[str]) -> Sequence[Block]:
        """The blocks whose ranges hold these keys, each once; a key before the first block has none."""
        rows = self._query_each(
            keys,
            "SELECT first_key, digest, objects FROM headwater_bookmark_blocks WHERE pipeline = :pipeline "
            "AND first_key <= :key ORDER BY first_key DESC LIMIT 1",
        )
        blocks = {str(first): Block(str(first), bytes(digest), _integer(objects)) for first, digest, objects in rows}  # type: ignore[call-overload]
        return list(blocks.values())

    def stage(self, lease: Lease, staged: pa.Table, blocks: Sequence[Block]) -> None:
        """Write bookmarks, and blocks, over those with the same keys."""

        def write(execute: Execute) -> None:
            if staged.num_rows:
                execute.many("headwater_bookmarks", self._columns(staged), _KEY)
            if blocks:
                columns: dict[str, Sequence[object]] = {
                    "pipeline": [self.pipeline] * len(blocks),
                    "first_key": [block.first for block in blocks],
                    "digest": [block.digest for block in blocks],
                    "objects": [block.objects for block in blocks],
                }
                execute.many("headwater_bookmark_blocks", columns, _BLOCK_KEY)

        self._fenced(lease, write)

    def window(self, after: int, up_to: int) -> Iterator[pa.Table]:
        """The bookmarks of these generations in state read or gone, in the order of their keys, page by page."""
        # Ordered by an expression: otherwise the planner would scan the whole index on the key for a few rows.
        rows = self._query(
            f"{_FROM} AND generation > :after AND generation <= :up_to AND state IN ('read', 'gone') ORDER BY key || ''",
            after=after,
            up_to=up_to,
        )
        for start in range(0, len(rows), _PAGE_ROWS):
            yield _table(rows[start : start + _PAGE_ROWS])

    def due(self, moment: dt.datetime, limit: int) -> pa.Table:
        """Failed bookmarks that are due."""
        rows = self._query(
            f"{_FROM} AND state IN ('failed', 'aside') AND state = 'failed' AND retry_at <= :moment "
            "ORDER BY retry_at LIMIT :most",
            moment=microseconds(moment),
            most=limit,
        )
        return _table(rows)

    def postpone(self, lease: Lease, failed: Iterable[FailedObject]) -> None:
        """Store state, reason, tries and retry_at of these; their other columns stay.

        A sink may hold their rows all the same, if it landed them before the next sink failed.
        """

        def write(execute: Execute) -> None:
            for bookmark in failed:
                values = {
                    "pipeline": self.pipeline,
                    "key": bookmark.key,
                    "state": bookmark.state,
                    "reason": bookmark.reason,
                    "tries": bookmark.tries,
                    "retry_at": None if bookmark.retry_at is None else microseconds(bookmark.retry_at),
                }
                execute(
                    "UPDATE headwater_bookmarks SET state = :state, reason = :reason, tries = :tries, "
                    "earlier = true, retry_at = :retry_at WHERE pipeline = :pipeline AND key = :key",
                    values,
                )

        self._fenced(lease, write)

    def last_key(self) -> str | None:
        """The greatest key of all bookmarks."""
        rows = self._query("SELECT key FROM headwater_bookmarks WHERE pipeline = :pipeline ORDER BY key DESC LIMIT 1")
        return str(rows[0][0]) if rows else None

    def browse(self, after: str | None, limit: int, states: Sequence[State], prefix: str = "") -> pa.Table:
        """The next bookmarks behind a key, in the order of keys."""
        values: dict[str, object] = {f"state_{'abcd'[number]}": state for number, state in enumerate(states)}
        conditions = [f"state IN ({', '.join(f':{name}' for name in values)})"]
        if after is not None:
            conditions.append("key > :after")
            values["after"] = after
        if prefix:
            conditions.append("key >= :prefix AND substr(key, 1, :length) = :prefix")
            values |= {"prefix": prefix, "length": len(prefix)}
        where = " AND ".join(conditions)
        return _table(self._query(f"{_FROM} AND {where} ORDER BY key LIMIT :most", most=limit, **values))

    def counts(self, generation: int) -> Sequence[Counted]:
        """How many there are, by state and by whether they are above this generation."""
        rows = self._query(
            "SELECT state, generation > :generation, count(*), CAST(sum(size) AS bigint) FROM headwater_bookmarks "
            "WHERE pipeline = :pipeline GROUP BY 1, 2 ORDER BY 1, 2",
            generation=generation,
        )
        return [Counted(state, bool(waiting), _integer(count), _integer(size)) for state, waiting, count, size in rows]  # type: ignore[arg-type]

    def forget(self, lease: Lease, keys: Sequence[str], landed: int) -> None:
        """Mark these objects as gone: the next listing finds those that exist as new."""

        def write(execute: Execute) -> None:
            for key in keys:
                values = {"pipeline": self.pipeline, "key": key}
                execute(
                    "UPDATE headwater_bookmarks SET earlier = earlier OR (state = 'read' AND generation <= :landed), "
                    "state = 'gone', retry_at = NULL WHERE pipeline = :pipeline AND key = :key",
                    {**values, "landed": landed},
                )
                # Its block must be compared again.
                execute(
                    "UPDATE headwater_bookmark_blocks SET digest = :none WHERE pipeline = :pipeline AND first_key = "
                    "(SELECT max(first_key) FROM headwater_bookmark_blocks WHERE pipeline = :pipeline AND first_key <= :key)",
                    {**values, "none": b""},
                )

        self._fenced(lease, write)

    def try_again(self, lease: Lease, keys: Sequence[str], moment: dt.datetime) -> None:
        """Make these failed ones due at that time, with their tries reset."""

        def write(execute: Execute) -> None:
            for key in keys:
                execute(
                    "UPDATE headwater_bookmarks SET state = 'failed', tries = 0, retry_at = :moment "
                    "WHERE pipeline = :pipeline AND key = :key AND state IN ('failed', 'aside')",
                    {"pipeline": self.pipeline, "key": key, "moment": microseconds(moment)},
                )

        self._fenced(lease, write)

    def _columns(self, staged: pa.Table) -> Mapping[str, Sequence[object]]:
        columns: dict[str, Sequence[object]] = {"pipeline": [self.pipeline] * staged.num_rows}
        return {**columns, **{name: staged.column(name).to_pylist() for name in BOOKMARK_COLUMNS}}

    def _query_each(self, keys: Sequence[str], statement: str) -> list[Row]:
        """The statement's rows for each key, in one transaction."""
        values = [{"pipeline": self.pipeline, "key": key} for key in keys]
        return self._run(lambda execute: execute.each(statement, values))

    def _query(self, statement: str, **values: object) -> Sequence[Row]:
        return self._run(lambda execute: execute(statement, {"pipeline": self.pipeline, **values}))


def microseconds(moment: dt.datetime) -> int:
    """Since 1970, UTC."""
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) / dt.timedelta(microseconds=1))


def _table(rows: Sequence[Row]) -> pa.Table:
    import pyarrow as pa

    schema = bookmark_schema()
    if not rows:
        return pa.Table.from_batches([], schema)  # without arrays of lists, for which Arrow imports pandas
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True))
    arrays = [pa.array(_values(field, values), field.type) for field, values in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _values(field: pa.Field, values: Sequence[Any]) -> Sequence[Any]:
    return [bool(value) for value in values] if field.name == "earlier" else values  # SQLite has no booleans


def bookmark_schema() -> pa.Schema:
    """Of a batch of bookmarks."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(alias)) for name, alias in BOOKMARK_COLUMNS.items()])


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an integer, not {value!r}")
    return value
