"""Rows with values that their types have no place for: stopped at, or set aside (G8).

Whoever reads rows makes parts of them: a batch, and beside it what is not in the batch. Nobody looks at a row
one by one until it is found to hold such a value.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.errors import ValueNotKept
from headwater.model.rejects import COPY, Reject, SetAside
from headwater.model.rows import Split
from headwater.sources.sql.relation import Column, Relation

if TYPE_CHECKING:
    import pyarrow as pa

Written = Sequence[str | None]  # a row, every value as the database itself writes it


@dataclass(frozen=True)
class Unkept:
    """The values of one column that its type has no place for."""

    position: int  # of the column
    what: str  # is wrong with them, in words that follow "values"
    texts: Mapping[int, str]  # by the row's number: the value as the database writes it


@dataclass(frozen=True)
class Part:
    """Some rows of a split."""

    batch: pa.RecordBatch  # in the stream's schema; NULL in place of a value that is not kept
    unkept: tuple[Unkept, ...]
    written: Callable[[int], Written]  # the row of that number, whole; good until the next part is asked for

    def of(self, wanted: Sequence[bool]) -> Part:
        """Only the rows that are wanted."""
        if all(wanted):
            return self
        numbers = [number for number, want in enumerate(wanted) if want]
        places = {number: place for place, number in enumerate(numbers)}
        unkept = (
            Unkept(one.position, one.what, {places[row]: text for row, text in one.texts.items() if row in places})
            for one in self.unkept
        )
        return Part(
            self.batch.filter(list(wanted)),
            tuple(one for one in unkept if one.texts),
            lambda place: self.written(numbers[place]),
        )


@runtime_checkable
class ReadsParts(Split, Protocol):
    """A split of a database that tells what it could not keep."""

    @property
    def names(self) -> RowNames: ...

    def read_parts(self) -> Iterator[Part]: ...


@dataclass(frozen=True)
class RowNames:
    """How the rows of a stream are known once they are set aside."""

    stream: str
    columns: tuple[Column, ...] = field(repr=False)
    key: tuple[str, ...]  # empty: by the cursor's value, and counted where they are alike
    cursor: str

    @classmethod
    def of(cls, relation: Relation) -> RowNames:
        read = {column.name for column in relation.columns}
        key = relation.key if read.issuperset(relation.key) else ()
        return cls(relation.stream, relation.columns, key, relation.subject.cursor)

    def name(self, row: Written) -> str:
        """The values of the key, or of the cursor, as JSON."""
        values = {column.name: _json(column, text) for column, text in zip(self.columns, row, strict=False)}
        return json.dumps({name: values[name] for name in self.key or (self.cursor,)}, ensure_ascii=False)

    def payload(self, row: Written) -> bytes:
        """All of the row, as JSON."""
        names = (column.name for column in self.columns)
        return json.dumps(dict(zip(names, row, strict=False)), ensure_ascii=False).encode()


def _json(column: Column, text: str | None) -> str | int | None:
    is_number = text is not None and column.kind in ("int32", "int64") and text.removeprefix("-").isdecimal()
    return int(text) if text is not None and is_number else text


def kept_whole(parts: Iterable[Part], names: RowNames) -> Iterator[pa.RecordBatch]:
    """All rows. Raises ValueNotKept where one holds a value that is not kept."""
    for part in parts:
        for unkept in part.unkept:
            raise not_kept(names.stream, names.columns[unkept.position], len(unkept.texts), unkept.what)
        if part.batch.num_rows:
            yield part.batch


def kept_rows(parts: Iterable[Part], names: RowNames, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
    """The rows that are kept; each of the others is set aside."""
    alike: Counter[str] = Counter()
    for part in parts:
        rejects = rejects_of(part, names) if part.unkept else {}
        for reject in rejects.values():
            set_aside(reject if names.key else _counted(reject, alike))
        if not rejects:
            yield part.batch
        elif len(rejects) < part.batch.num_rows:
            yield part.of([number not in rejects for number in range(part.batch.num_rows)]).batch


def _counted(reject: Reject, alike: Counter[str]) -> Reject:
    """Rows of a table without a key may be alike in all their values, and still are two."""
    alike[reject.id] += 1
    return replace(reject, place={**reject.place, COPY: alike[reject.id]})


def rejects_of(part: Part, names: RowNames) -> dict[int, Reject]:
    """By the row's number. The mark stands on the cursor: a cursor that is not kept stops the read after all."""
    reasons: dict[int, list[str]] = {}
    for unkept in part.unkept:
        column = names.columns[unkept.position]
        if column.name == names.cursor:
            raise not_kept(names.stream, column, len(unkept.texts), unkept.what)
        reason = f"column {column.name} ({column.declared or column.kind}): {unkept.what}"
        for row in unkept.texts:
            reasons.setdefault(row, []).append(reason)
    found = {}
    for number, why in sorted(reasons.items()):
        written = part.written(number)
        place = {"row": names.name(written)}
        found[number] = Reject(names.stream, place, "; ".join(why), names.payload(written))
    return found


def not_kept(stream: str, column: Column, count: int, what: str) -> ValueNotKept:
    """The error for values that a column's type cannot hold."""
    return ValueNotKept(
        f"{stream}: column {column.name} ({column.declared or column.kind}) has at least {count} "
        f"value{'s' if count != 1 else ''} {what}; {column.kind} cannot keep such values exactly",
        hint=f"read the column as text (as_text: [{column.name}]), or leave those rows out (where: …)",
    )
