"""The SQL text of the `sql` source, as pure functions.

Identifiers and limits are written by sqlglot for each dialect, values are quoted by it. `where:` and `query:`
are the user's own SQL and go in as they are, each on lines of its own so that a trailing comment ends there.

A mark divides rows into those that are done and those that are not; a window is what is done by its end and
was not done by its start. So each row falls into exactly one window (G5, G6), whoever asks and when:

    done(mark)  =  cursor <= value  and  (cursor <= low  or  transaction seen)
    window      =  done(end)  and not  done(start)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.cursor import CursorValue
from headwater.sources.sql import jdbc_sql
from headwater.sources.sql.cursor_sql import (
    bare,
    call,
    cast,
    comparable,
    identifier,
    index_bound,
    literal,
    number_,
)
from headwater.sources.sql.relation import Column, Subject

if TYPE_CHECKING:
    from headwater.model.marks import ColumnMark, SnapshotSeen
    from headwater.sources.sql.cursor_sql import Condition

_XID_MASK = 0xFFFFFFFF
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)
_BLOB = re.compile(r"X'([0-9A-F]*)'")
_NULLS_ARE_LARGE = ("postgres", "oracle")


# ── statements ──────────────────────────────────────────────────────────────────────────────────────────────


def read_rows(subject: Subject, columns: Sequence[Column], conditions: Sequence[Condition]) -> str:
    """The rows of a window or of a part of it, in the columns' order."""
    return _text(subject, _select(subject, [_selected(subject, column) for column in columns], conditions))


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
    return _text(subject, _select(subject, [*(_selected(subject, column) for column in columns), *flags], conditions))


def describe(subject: Subject) -> str:
    """No rows, only names and types."""
    return _text(subject, _select(subject, [exp.Star()], []).limit(0))


def top_value(subject: Subject, conditions: Sequence[Condition]) -> str:
    """The greatest cursor value as text; no row when there is none. An index on the cursor answers it at once."""
    return _text(subject, _ordered(subject, conditions, descending=True).limit(1))


def nth_value(subject: Subject, conditions: Sequence[Condition], number: int) -> str:
    """The cursor value of row `number` (from 1) in cursor order, as text; no row when there are fewer."""
    return _text(subject, _ordered(subject, conditions, descending=False).limit(1).offset(number - 1))


def storage_of_one(subject: Subject, conditions: Sequence[Condition]) -> str:
    """How the cursor of one of the rows is stored (SQLite); no row when there are none."""
    return _text(subject, _select(subject, [call("typeof", bare(subject))], conditions).limit(1))


def any_rows(subject: Subject, *alternatives: Sequence[Condition]) -> str:
    """Whether there is a row under one of several sets of conditions; each is answered on its own, by its index."""
    found = [exp.Exists(this=_select(subject, [number_(1)], conditions)) for conditions in alternatives]
    return exp.select(exp.alias_(exp.or_(*found), "found")).sql(dialect=subject.dialect, comments=False)


def count_rows(subject: Subject, conditions: Sequence[Condition]) -> str:
    return _text(subject, _select(subject, [exp.Count(this=exp.Star(), big_int=True)], conditions))


def quantiles(subject: Subject, conditions: Sequence[Condition], parts: int) -> str:
    """The cursor values that cut the rows into parts of similar size, as an array of texts (PostgreSQL)."""
    shares = ",".join(f"{number / parts:.6f}" for number in range(1, parts))
    found = exp.WithinGroup(
        this=exp.Anonymous(
            this="percentile_disc",
            expressions=[cast(exp.Literal.string("{" + shares + "}"), "double precision[]")],
        ),
        expression=exp.Order(expressions=[exp.Ordered(this=comparable(subject))]),
    )
    return _text(subject, _select(subject, [cast(found, "text[]")], conditions))


# ── conditions ──────────────────────────────────────────────────────────────────────────────────────────────


def snapshot_window(
    subject: Subject,
    start: ColumnMark | None,
    end: ColumnMark | None,
    *,
    low_start: CursorValue | None,
    low_end: CursorValue | None,
    floor: CursorValue | None,
    seen: SnapshotSeen,
) -> list[Condition]:
    """Rows with a cursor that are done by `end` and not by `start`; without `end`, all that `seen` allows.

    `low_start` and `low_end`: below them nothing can come any more; None: nothing is known, so look everywhere.
    """
    conditions: list[Condition] = [] if floor is None else [above(subject, floor)]
    conditions.append(with_value(subject) if end is None or end.value is None else at_most(subject, end.value))
    old = exp.Not(this=exp.Paren(this=fresh(seen)))
    if low_end is None:
        conditions.append(old)
    elif end is None or end.value is None or subject.kind.order(low_end) < subject.kind.order(end.value):
        conditions.append(exp.or_(at_most(subject, low_end), old))
    if start is not None and start.value is not None:
        conditions += _not_done(subject, start, start.value, low_start)
    return conditions


def not_done(
    subject: Subject, start: ColumnMark, low: CursorValue | None, floor: CursorValue | None
) -> list[Condition]:
    """Rows with a cursor that `start` leaves for later, whoever wrote them."""
    conditions: list[Condition] = [with_value(subject) if floor is None else above(subject, floor)]
    return conditions if start.value is None else [*conditions, *_not_done(subject, start, start.value, low)]


def new_nulls(subject: Subject, start: ColumnMark) -> list[Condition]:
    """Rows without a cursor value that `start` leaves for later."""
    return [without_value(subject), *([] if start.snapshot is None else [fresh(start.snapshot)])]


def snapshot_nulls(subject: Subject, start: ColumnMark | None, seen: SnapshotSeen) -> list[Condition]:
    """Rows without a cursor value: new are those whose transaction the start had not seen."""
    conditions: list[Condition] = [without_value(subject), exp.Not(this=exp.Paren(this=fresh(seen)))]
    if start is not None and start.snapshot is not None:
        conditions.append(fresh(start.snapshot))
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


def fresh(seen: SnapshotSeen) -> Condition:
    """Rows of transactions that a poll had not seen.

    `age` counts back from the server's next transaction in 32 bits and is the greatest number for frozen rows;
    rows frozen long ago keep their old number, whose age is negative or large: old, too.
    """
    since = call("age", _xid(seen.horizon))
    recent: Condition = exp.Between(this=call("age", exp.column("xmin")), low=exp.Literal.number(0), high=since)
    if not seen.pending:
        return recent
    listed = "{" + ",".join(str(xid & _XID_MASK) for xid in seen.pending) + "}"
    pending = exp.Any(this=exp.Paren(this=cast(exp.Literal.string(listed), "xid[]")))
    return exp.or_(recent, exp.EQ(this=exp.column("xmin"), expression=pending))


def place_range(first_page: int, end_page: int | None) -> list[Condition]:
    """Rows stored in a range of pages (PostgreSQL); the last range is open-ended."""
    place = exp.column("ctid")
    low: Condition = exp.GTE(this=place, expression=cast(exp.Literal.string(f"({first_page},0)"), "tid"))
    if end_page is None:
        return [low]
    return [low, exp.LT(this=place, expression=cast(exp.Literal.string(f"({end_page},0)"), "tid"))]


def rowid_range(first: int | None, end: int | None) -> list[Condition]:
    """Rows with row numbers in a half-open range (SQLite)."""
    place = exp.column("rowid")
    low: list[Condition] = [] if first is None else [exp.GTE(this=place, expression=number_(first))]
    return low if end is None else [*low, exp.LT(this=place, expression=number_(end))]


def rowid_span(subject: Subject, conditions: Sequence[Condition]) -> str:
    """The least and the greatest row number (SQLite)."""
    place = exp.column("rowid")
    return _text(subject, _select(subject, [exp.Min(this=place), exp.Max(this=place)], conditions))


def with_value(subject: Subject) -> Condition:
    return exp.Not(this=without_value(subject))


def without_value(subject: Subject) -> Condition:
    return exp.Is(this=bare(subject), expression=exp.null())


def above(subject: Subject, value: CursorValue) -> Condition:
    return exp.GT(this=comparable(subject), expression=literal(subject, value))


def at_least(subject: Subject, value: CursorValue) -> Condition:
    return exp.GTE(this=comparable(subject), expression=literal(subject, value))


def at_most(subject: Subject, value: CursorValue) -> Condition:
    return exp.LTE(this=comparable(subject), expression=literal(subject, value))


def below(subject: Subject, value: CursorValue) -> Condition:
    return exp.LT(this=comparable(subject), expression=literal(subject, value))


def same_row(subject: Subject, values: Mapping[str, str | None]) -> Condition:
    """Rows that have these values, given in the database's own texts."""
    return exp.and_(*(_same(subject, exp.column(identifier(name)), text) for name, text in values.items()))


def _same(subject: Subject, column: Condition, text: str | None) -> Condition:
    if text is None:
        return exp.Is(this=column, expression=exp.null())
    forms: list[Condition] = [exp.Literal.string(text)]
    if subject.dialect == "sqlite":
        # A text does not say whether a number or a blob is stored; an index answers for all of them.
        forms += [exp.Literal.number(text)] if _NUMBER.fullmatch(text) else []
        forms += [exp.HexString(this=blob[1])] if (blob := _BLOB.fullmatch(text)) else []
    return exp.In(this=column, expressions=forms)


def either(*conditions: Condition) -> Condition:
    return exp.or_(*conditions)


def both(conditions: Sequence[Condition]) -> Condition:
    return exp.and_(*conditions)


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────


def _not_done(
    subject: Subject, start: ColumnMark, value: CursorValue, low_start: CursorValue | None
) -> list[Condition]:
    newer = above(subject, value)
    if start.snapshot is None:
        return [newer]
    either_way = exp.or_(newer, fresh(start.snapshot))
    if low_start is None:
        return [either_way]
    order = subject.kind.order
    if order(low_start) >= order(value):
        return [newer]
    return [above(subject, low_start), either_way]  # one range for the index, then the test of each row


def _ordered(subject: Subject, conditions: Sequence[Condition], *, descending: bool) -> exp.Select:
    shown = comparable(subject)
    if subject.dialect in jdbc_sql.DIALECTS:
        shown = jdbc_sql.cursor_text(subject, bare(subject))
    elif subject.dialect != "sqlite":
        shown = cast(bare(subject), "text")
    # Under a name of its own: ORDER BY would take a result column of the cursor's name, and sort its text.
    shown = exp.alias_(shown, "headwater_value", quoted=True)
    # NULLs are excluded by the conditions; naming another place than their usual one would keep indexes from use.
    nulls_first = descending is (subject.dialect in _NULLS_ARE_LARGE)
    order = exp.Ordered(this=comparable(subject), desc=descending, nulls_first=nulls_first)
    return _select(subject, [shown], conditions).order_by(order)


def _select(subject: Subject, shown: Sequence[Condition], conditions: Sequence[Condition]) -> exp.Select:
    select = exp.select(*shown).from_(_source(subject))
    for condition in conditions:
        select = select.where(condition, copy=False)
    if subject.where:
        select = select.where(exp.Paren(this=exp.var(f"\n{subject.where}\n")), copy=False)
    return select


def _source(subject: Subject) -> Condition:
    if subject.query:
        own = subject.query.strip().rstrip(";")
        return exp.Subquery(this=exp.var(f"\n{own}\n"), alias=exp.TableAlias(this=identifier("rows_of_query")))
    parts = [identifier(part) for part in subject.name]
    return exp.Table(this=parts[-1], db=parts[-2] if len(parts) > 1 else None)


def _selected(subject: Subject, column: Column) -> Condition:
    plain = exp.column(identifier(column.name))
    if subject.dialect in jdbc_sql.DIALECTS:
        return jdbc_sql.selected(subject.dialect, column, plain)
    is_cast = column.as_text and not column.is_jsonb
    return exp.alias_(cast(plain, "text"), column.name, quoted=True) if is_cast else plain


def _xid(full: int) -> Condition:
    return cast(exp.Literal.string(str(full & _XID_MASK)), "xid")


def _text(subject: Subject, select: exp.Select) -> str:
    return select.sql(dialect=subject.dialect, comments=False)
