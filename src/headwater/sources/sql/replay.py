"""Rejected rows, read again from the database by their keys, under today's settings.

A row without a key is identified by its cursor and all its values: it is found only if none of them has changed. Where
a row's cursor has moved, another window has the row; a replay would land it twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, UnknownName
from headwater.model.rows import COPY, ExactBatch, MemorySplit, ReadsExactBatches, Reject, Rows, rejects_of
from headwater.sources.sql import statements
from headwater.sources.sql.database import Relation, rows_of

if TYPE_CHECKING:
    from headwater.sources.sql.database import View

_ROWS_PER_STATEMENT = 500
_Values = tuple[str | None, ...]


def replayed_rows(relation: Relation, view: View, rejects: Sequence[Reject]) -> Rows | None:
    """The rows of one stream's rejects; None: the source no longer has any of them."""
    splits: list[MemorySplit] = []
    by_columns: dict[tuple[str, ...], list[Reject]] = {}
    for reject in rejects:
        by_columns.setdefault(tuple(_identity(reject)), []).append(reject)
    for columns, group in by_columns.items():
        _check_columns(relation, columns)
        for begin in range(0, len(group), _ROWS_PER_STATEMENT):
            splits += _read_rows(relation, view, group[begin : begin + _ROWS_PER_STATEMENT], columns)
    if not splits:
        return None
    return rows_of(relation, tuple(splits))


def _read_rows(
    relation: Relation, view: View, rejects: Sequence[Reject], columns: Sequence[str]
) -> Iterator[MemorySplit]:
    identities = dict.fromkeys(_identity_values(reject) for reject in rejects)
    condition = statements.either(
        *(statements.same_row(relation.subject, dict(zip(columns, values, strict=True))) for values in identities)
    )
    split = view.split(statements.read_rows(relation.subject, relation.columns, [condition]), relation, None)
    if not isinstance(split, ReadsExactBatches):
        raise InputError(
            f"{relation.stream}: a JDBC driver cannot read single rows again",
            hint="rewind the pipeline to before those rows",
        )
    pending = _PendingRejects(relation, rejects, columns)
    for exact in split.read_exact():
        matches = [pending.pop(exact, row) for row in range(exact.batch.num_rows)]
        rejected = _rejected_again(exact, split, matches)
        batch = exact.select([match is not None and row not in rejected for row, match in enumerate(matches)]).batch
        if batch.num_rows or rejected:
            yield MemorySplit((batch,) if batch.num_rows else (), tuple(rejected.values()))


def _rejected_again(exact: ExactBatch, split: ReadsExactBatches, matches: Sequence[Reject | None]) -> dict[int, Reject]:
    """Rows with values that their types still cannot hold, as rejects with the same place."""
    if not exact.inexact:
        return {}
    rejects = rejects_of(exact, split.identity)
    return {
        row: replace(rejects[row], location=match.location)
        for row, match in enumerate(matches)
        if match and row in rejects
    }


class _PendingRejects:
    """Rejects whose rows are still to be read."""

    def __init__(self, relation: Relation, rejects: Sequence[Reject], columns: Sequence[str]) -> None:
        self._positions = {column.name: position for position, column in enumerate(relation.columns)}
        self._columns, self._cursor = columns, relation.subject.cursor
        self._by_identity: dict[_Values, list[Reject]] = {}
        for reject in rejects:
            self._by_identity.setdefault(_identity_values(reject), []).append(reject)

    def pop(self, exact: ExactBatch, row: int) -> Reject | None:
        """The reject of this row."""
        texts = exact.row_texts(row)
        values = {name: texts[position] for name, position in self._positions.items()}
        candidates = self._by_identity.get(tuple(values[name] for name in self._columns), [])
        for number, reject in enumerate(candidates):
            if self._matches(reject, values):
                return candidates.pop(number)
        return None

    def _matches(self, reject: Reject, values: Mapping[str, str | None]) -> bool:
        payload = json.loads(reject.payload)
        names = payload if COPY in reject.location else (self._cursor,)
        return all(payload.get(name) == values[name] for name in names if name in values and name in payload)


def _check_columns(relation: Relation, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in {column.name for column in relation.columns}]
    if missing:
        raise UnknownName(
            f"{relation.stream}: rejects are identified by {', '.join(columns)}; not read any more: {', '.join(missing)}",
            hint="add them to columns:, or rewind the pipeline to before those rows",
        )


def _identity(reject: Reject) -> dict[str, str | int | None]:
    identity: dict[str, str | int | None] = json.loads(str(reject.location["row"]))
    return identity


def _identity_values(reject: Reject) -> _Values:
    return tuple(None if value is None else str(value) for value in _identity(reject).values())
