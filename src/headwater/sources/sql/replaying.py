"""Rows that were set aside, read anew from the database by their keys, under today's settings.

A row without a key is known by its cursor and all its values: to find it again, none of them may have changed. Where a
row's cursor has moved, a window has brought it since, or will; to replay it, too, would land it twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headwater.model.errors import InputError, UnknownName, ValueNotKept
from headwater.model.rejects import COPY, Reject, SetAside
from headwater.sources.split_rows import ArrowRows
from headwater.sources.sql import statements
from headwater.sources.sql.relation import Relation
from headwater.sources.sql.unkept import Part, ReadsParts, rejects_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.sources.sql.view import View

_AT_ONCE = 500  # rows in one statement
_Values = tuple[str | None, ...]


@dataclass(frozen=True)
class HeldSplit:
    """Rows that are in memory already: rejects are few."""

    batches: tuple[pa.RecordBatch, ...] = field(repr=False)
    rejects: tuple[Reject, ...] = field(repr=False)  # what still has no place

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def read(self) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            raise ValueNotKept(f"{reject.stream}: row {reject.place['row']}: {reject.reason}")
        yield from self.batches

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            set_aside(reject)
        yield from self.batches


def replayed_rows(relation: Relation, view: View, rejects: Sequence[Reject]) -> ArrowRows | None:
    """The rows of one stream's rejects; None: the source has none of them any more."""
    found: list[HeldSplit] = []
    by_columns: dict[tuple[str, ...], list[Reject]] = {}
    for reject in rejects:
        by_columns.setdefault(tuple(_name(reject)), []).append(reject)
    for columns, named in by_columns.items():
        _check(relation, columns)
        for begin in range(0, len(named), _AT_ONCE):
            some = named[begin : begin + _AT_ONCE]
            found += _found(relation, view, some, columns)
    if not found:
        return None
    order = (relation.subject.cursor,)
    return ArrowRows(relation.stream, relation.schema, relation.key, order, tuple(found))


def _found(relation: Relation, view: View, rejects: Sequence[Reject], columns: Sequence[str]) -> Iterator[HeldSplit]:
    names = dict.fromkeys(tuple(_text(value) for value in _name(reject).values()) for reject in rejects)
    any_of = statements.either(
        *(statements.same_row(relation.subject, dict(zip(columns, x, strict=True))) for x in names)
    )
    split = view.split(statements.read_rows(relation.subject, relation.columns, [any_of]), relation, None)
    if not isinstance(split, ReadsParts):
        raise InputError(
            f"{relation.stream}: rows behind a JDBC driver cannot be looked up again one by one",
            hint="rewind the pipeline to before them",
        )
    wanted = _Wanted(relation, rejects, columns)
    for part in split.read_parts():
        matched = [wanted.take(part, row) for row in range(part.batch.num_rows)]
        again = _again(part, split, matched)
        kept = part.of([one is not None and row not in again for row, one in enumerate(matched)]).batch
        if kept.num_rows or again:
            yield HeldSplit((kept,) if kept.num_rows else (), tuple(again.values()))


def _again(part: Part, split: ReadsParts, matched: Sequence[Reject | None]) -> dict[int, Reject]:
    """Rows that still have no place, at the place they had: so they are the same rejects."""
    if not part.unkept:
        return {}
    found = rejects_of(part, split.names)
    return {
        row: replace(found[row], place=reject.place) for row, reject in enumerate(matched) if reject and row in found
    }


class _Wanted:
    """Rejects whose rows have not been met yet."""

    def __init__(self, relation: Relation, rejects: Sequence[Reject], columns: Sequence[str]) -> None:
        self._places = {column.name: place for place, column in enumerate(relation.columns)}
        self._columns, self._cursor = columns, relation.subject.cursor
        self._left: dict[_Values, list[Reject]] = {}
        for reject in rejects:
            self._left.setdefault(tuple(_text(value) for value in _name(reject).values()), []).append(reject)

    def take(self, part: Part, row: int) -> Reject | None:
        """The reject that this row once was."""
        written = part.written(row)
        values = {name: written[place] for name, place in self._places.items()}
        candidates = self._left.get(tuple(values[name] for name in self._columns), [])
        for number, reject in enumerate(candidates):
            if self._is(reject, values):
                return candidates.pop(number)
        return None

    def _is(self, reject: Reject, values: Mapping[str, str | None]) -> bool:
        was = json.loads(reject.payload)
        compared = was if COPY in reject.place else (self._cursor,)
        return all(was.get(name) == values[name] for name in compared if name in values and name in was)


def _check(relation: Relation, columns: Sequence[str]) -> None:
    missing = [name for name in columns if name not in {column.name for column in relation.columns}]
    if missing:
        raise UnknownName(
            f"{relation.stream}: rejects are known by {', '.join(columns)}; not read any more: {', '.join(missing)}",
            hint="name them in columns:, or rewind the pipeline to before them",
        )


def _name(reject: Reject) -> dict[str, str | int | None]:
    name: dict[str, str | int | None] = json.loads(str(reject.place["row"]))
    return name


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)
