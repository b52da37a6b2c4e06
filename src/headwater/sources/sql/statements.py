"""The SQL text of the `sql` source, as pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.types import Column, CursorValue
from headwater.sources.sql import dialects
from headwater.sources.sql.database import Subject, View
from headwater.sources.sql.dialects import (
    call,
    cast,
    comparable,
    cursor_column,
    identifier,
    index_bound,
    literal,
    number_,
)

if TYPE_CHECKING:
    from headwater.model.position.marks import ColumnMark
    from headwater.model.position.seen_rows import SeenTransactions
    from headwater.sources.sql.dialects import Condition

_XID_MASK = 0xFFFFFFFF
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
_BLOB = re.compile(r"X'([0-9A-F]*)'")
_NULLS_ARE_LARGE = ("postgres", "oracle")


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────


def read_rows(subject: Subject, columns: Sequence[Column], conditions: Sequence[Condition]) -> str:
    """The rows of a window or of one of its splits, in the columns' order."""
    return _text(subject, _select(subject, [_output_column(subject, column) for column in columns], conditions))


def read_flagged(
    subject: Subject, columns: Sequence[Column], unless: Sequence[Condition], conditions: Sequence[Condition]
) -> str:
    """As `read_rows`, with one more column per condition of `unless`: 0 where it holds, else 1 (so also for NULL)."""
    flags = [
        exp.alias_(
            exp.Case(ifs=[exp.If(this=condition, true=number_(0))], default=number_(1)),
            f"headwater_flag_{number}",
            quoted=True,
        )
        for number, condition in enumerate(unless)
    ]
    return _text(
        subject, _select(subject, [*(_output_column(subject, column) for column in columns), *flags], conditions)
    )


def describe(subject: Subject) -> str:
    """A result without rows, for its names and types."""
    return _text(subject, _select(subject, [exp.Star()], []).limit(0))


def top_value(subject: Subject, conditions: Sequence[Condition]) -> str:
    """The greatest cursor value as text; no row when no row matches. An index on the cursor serves it."""
    return _text(subject, _ordered(subject, conditions, descending=True).limit(1))


def nth_value(subject: Subject, conditions: Sequence[Condition], number: int) -> str:
    """The cursor value of row `number` (from 1) in cursor order, as text; no row when there are fewer."""
    return _text(subject, _ordered(subject, conditions, descending=False).limit(1).offset(number - 1))


def storage_of_one(subject: Subject, conditions: Sequence[Condition]) -> str:
    """How the cursor of one of the rows is stored (SQLite); no row when there are none."""
    return _text(subject, _select(subject, [call("typeof", cursor_column(subject))], conditions).limit(1))


def any_rows(subject: Subject, *alternatives: Sequence[Condition]) -> str:
    """Whether there is a row under one of several sets of conditions; each can use an index of its own."""
    exists = [exp.Exists(this=_select(subject, [number_(1)], conditions)) for conditions in alternatives]
    return exp.select(exp.alias_(exp.or_(*exists), "found")).sql(dialect=subject.dialect, comments=False)


def count_of(view: View, subject: Subject, conditions: Sequence[Condition]) -> int:
    return int(view.fetch(count_rows(subject, conditions))[0][0])


def count_rows(subject: Subject, conditions: Sequence[Condition]) -> str:
    return _text(subject, _select(subject, [exp.Count(this=exp.Star(), big_int=True)], conditions))


def quantiles(subject: Subject, conditions: Sequence[Condition], count: int) -> str:
    """The cursor values that cut the rows into ranges of similar size, as an array of texts (PostgreSQL)."""
    shares = ",".join(f"{number / count:.6f}" for number in range(1, count))
    percentiles = exp.WithinGroup(
        this=exp.Anonymous(
            this="percentile_disc",
            expressions=[cast(exp.Literal.string("{" + shares + "}"), "double precision[]")],
        ),
        expression=exp.Order(expressions=[exp.Ordered(this=comparable(subject))]),
    )
    return _text(subject, _select(subject, [cast(percentiles, "text[]")], conditions))


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────


def snapshot_window(
    subject: Subject,
    start: ColumnMark | None,
    end: ColumnMark | None,
    *,
    low_start: CursorValue | None,
    low_end: CursorValue | None,
    floor: CursorValue | None,
    seen: SeenTransactions,
) -> list[Condition]:
    """Rows with a cursor that are done by `end` and not by `start`; without `end`, all of settled transactions.

    `low_start` and `low_end`: no row can appear below them any more; None: unknown, so every row is compared.
    """
    conditions: list[Condition] = [] if floor is None else [above(subject, floor)]
    conditions.append(with_value(subject) if end is None or end.value is None else at_most(subject, end.value))
    settled = exp.Not(this=exp.Paren(this=unsettled_rows(seen)))
    if low_end is None:
        conditions.append(settled)
    elif end is None or end.value is None or subject.cursor_type.order(low_end) < subject.cursor_type.order(end.value):
        conditions.append(exp.or_(at_most(subject, low_end), settled))
    if start is not None and start.value is not None:
        conditions += _not_done(subject, start, start.value, low_start)
    return conditions


def not_done(
    subject: Subject, start: ColumnMark, low: CursorValue | None, floor: CursorValue | None
) -> list[Condition]:
    """Rows with a cursor value that are not done at `start`."""
    conditions: list[Condition] = [with_value(subject) if floor is None else above(subject, floor)]
    return conditions if start.value is None else [*conditions, *_not_done(subject, start, start.value, low)]


def new_nulls(subject: Subject, start: ColumnMark) -> list[Condition]:
    """Rows without a cursor value that are not done at `start`."""
    return [without_value(subject), *([] if start.snapshot is None else [unsettled_rows(start.snapshot)])]


def snapshot_nulls(subject: Subject, start: ColumnMark | None, seen: SeenTransactions) -> list[Condition]:
    """Rows without a cursor value: new are those whose transaction the start had not seen."""
    conditions: list[Condition] = [without_value(subject), exp.Not(this=exp.Paren(this=unsettled_rows(seen)))]
    if start is not None and start.snapshot is not None:
        conditions.append(unsettled_rows(start.snapshot))
    return conditions


def value_window(subject: Subject, above_value: CursorValue | None, up_to: CursorValue | None) -> list[Condition]:
    """A plain range of the cursor: above one value, up to and including another."""
    conditions: list[Condition] = []
    if above_value is not None:
        conditions.append(after_value(subject, above_value))
    elif up_to is None:
        conditions.append(with_value(subject))
    if up_to is not None:
        conditions.append(at_most(subject, up_to))
    return conditions


def from_value(subject: Subject, value: CursorValue) -> Condition:
    """At or above a value."""
    return exp.and_(*index_bound(subject, value), at_least(subject, value))


def after_value(subject: Subject, value: CursorValue) -> Condition:
    """Above a value."""
    return exp.and_(*index_bound(subject, value), above(subject, value))


def unsettled_rows(seen: SeenTransactions) -> Condition:
    """Rows of transactions that were not settled at a poll.

    `age` counts back from the server's next transaction in 32 bits and is the greatest number for frozen rows;
    rows frozen long ago have their old id, whose age is negative or large: old, too.
    """
    since = call("age", _xid(seen.horizon))
    recent: Condition = exp.Between(this=call("age", exp.column("xmin")), low=exp.Literal.number(0), high=since)
    if not seen.pending:
        return recent
    xids = "{" + ",".join(str(xid & _XID_MASK) for xid in seen.pending) + "}"
    pending = exp.Any(this=exp.Paren(this=cast(exp.Literal.string(xids), "xid[]")))
    return exp.or_(recent, exp.EQ(this=exp.column("xmin"), expression=pending))


def page_range(first_page: int, end_page: int | None) -> list[Condition]:
    """Rows stored in a range of pages (PostgreSQL); the last range is open-ended."""
    page = exp.column("ctid")
    low: Condition = exp.GTE(this=page, expression=cast(exp.Literal.string(f"({first_page},0)"), "tid"))
    if end_page is None:
        return [low]
    return [low, exp.LT(this=page, expression=cast(exp.Literal.string(f"({end_page},0)"), "tid"))]


def cursor_ranges(subject: Subject, cuts: Sequence[CursorValue]) -> list[list[Condition]]:
    """The ranges between values of the cursor; the first and the last are open-ended."""
    lows = [[], *([above(subject, cut)] for cut in cuts)]
    highs = [*([at_most(subject, cut)] for cut in cuts), []]
    return [[*low, *high] for low, high in zip(lows, highs, strict=True)]


def rowid_range(first: int | None, end: int | None) -> list[Condition]:
    """Rows with rowids in a half-open range (SQLite)."""
    rowid = exp.column("rowid")
    low: list[Condition] = [] if first is None else [exp.GTE(this=rowid, expression=number_(first))]
    return low if end is None else [*low, exp.LT(this=rowid, expression=number_(end))]


def rowid_span(subject: Subject, conditions: Sequence[Condition]) -> str:
    """The least and the greatest rowid (SQLite)."""
    rowid = exp.column("rowid")
    return _text(subject, _select(subject, [exp.Min(this=rowid), exp.Max(this=rowid)], conditions))


def with_value(subject: Subject) -> Condition:
    return exp.Not(this=without_value(subject))


def without_value(subject: Subject) -> Condition:
    return exp.Is(this=cursor_column(subject), expression=exp.null())


def above(subject: Subject, value: CursorValue) -> Condition:
    return exp.GT(this=comparable(subject), expression=literal(subject, value))


def at_least(subject: Subject, value: CursorValue) -> Condition:
    return exp.GTE(this=comparable(subject), expression=literal(subject, value))


def at_most(subject: Subject, value: CursorValue) -> Condition:
    return exp.LTE(this=comparable(subject), expression=literal(subject, value))


def below(subject: Subject, value: CursorValue) -> Condition:
    return exp.LT(this=comparable(subject), expression=literal(subject, value))


def same_row(subject: Subject, values: Mapping[str, str | None]) -> Condition:
    """Rows that have these values, written as the database writes them."""
    return exp.and_(*(_same(subject, exp.column(identifier(name)), text) for name, text in values.items()))


def _same(subject: Subject, column: Condition, text: str | None) -> Condition:
    if text is None:
        return exp.Is(this=column, expression=exp.null())
    forms: list[Condition] = [exp.Literal.string(text)]
    if subject.dialect == "sqlite":
        # A text may stand for a number or a blob; an index serves all of them.
        forms += [exp.Literal.number(text)] if _NUMBER.fullmatch(text) else []
        forms += [exp.HexString(this=blob[1])] if (blob := _BLOB.fullmatch(text)) else []
    return exp.In(this=column, expressions=forms)


def either(*conditions: Condition) -> Condition:
    return exp.or_(*conditions)


def both(conditions: Sequence[Condition]) -> Condition:
    return exp.and_(*conditions)


# ── clauses ──────────────────────────────────────────────────────────────────────────────────────────────────


def _not_done(
    subject: Subject, start: ColumnMark, value: CursorValue, low_start: CursorValue | None
) -> list[Condition]:
    newer = above(subject, value)
    if start.snapshot is None:
        return [newer]
    new_or_unsettled = exp.or_(newer, unsettled_rows(start.snapshot))
    if low_start is None:
        return [new_or_unsettled]
    order = subject.cursor_type.order
    if order(low_start) >= order(value):
        return [newer]
    return [above(subject, low_start), new_or_unsettled]  # one range for the index, then a test of each row


def _ordered(subject: Subject, conditions: Sequence[Condition], *, descending: bool) -> exp.Select:
    value = comparable(subject)
    if subject.dialect in dialects.DIALECTS:
        value = dialects.cursor_text(subject, cursor_column(subject))
    elif subject.dialect != "sqlite":
        value = cast(cursor_column(subject), "text")
    # Under a name of its own: ORDER BY would use a result column of the cursor's name, and sort its text.
    value = exp.alias_(value, "headwater_value", quoted=True)
    # NULLs are excluded by the conditions; another position than their default would keep indexes from use.
    nulls_first = descending is (subject.dialect in _NULLS_ARE_LARGE)
    order = exp.Ordered(this=comparable(subject), desc=descending, nulls_first=nulls_first)
    return _select(subject, [value], conditions).order_by(order)


def _select(subject: Subject, values: Sequence[Condition], conditions: Sequence[Condition]) -> exp.Select:
    select = exp.select(*values).from_(_source(subject))
    for condition in conditions:
        select = select.where(condition, copy=False)
    if subject.where:
        select = select.where(exp.Paren(this=exp.var(f"\n{subject.where}\n")), copy=False)
    return select


def _source(subject: Subject) -> Condition:
    if subject.query:
        query = subject.query.strip().rstrip(";")
        return exp.Table(this=exp.var(f"(\n{query}\n)"), alias=exp.TableAlias(this=identifier("rows_of_query")))
    identifiers = [identifier(name) for name in subject.name]
    return exp.Table(this=identifiers[-1], db=identifiers[-2] if len(identifiers) > 1 else None)


def _output_column(subject: Subject, column: Column) -> Condition:
    plain = exp.column(identifier(column.name))
    if subject.dialect in dialects.DIALECTS:
        return dialects.output_column(subject.dialect, column, plain)
    is_cast = column.as_text and not column.is_jsonb
    return exp.alias_(cast(plain, "text"), column.name, quoted=True) if is_cast else plain


def _xid(xid: int) -> Condition:
    return cast(exp.Literal.string(str(xid & _XID_MASK)), "xid")


def _text(subject: Subject, select: exp.Select) -> str:
    return select.sql(dialect=subject.dialect, comments=False)
