"""The cursor and its values in SQL, and the small pieces that all statements are made of."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from sqlglot import exp

from headwater.model.cursor import CursorType, CursorValue
from headwater.sources.sql import jdbc_sql
from headwater.sources.sql.relation import Subject

if TYPE_CHECKING:
    Condition = exp.Expr

_CASTS = {
    CursorType.DATE: "date",
    CursorType.TIMESTAMP: "timestamp",
    CursorType.TIMESTAMPTZ: "timestamptz",
    CursorType.UUID: "uuid",
}
_TIMES = (CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ)
_DIGIT, _HEX = "[0-9]", "[0-9a-f]"
_DATE_SHAPE = f"{_DIGIT * 4}-{_DIGIT * 2}-{_DIGIT * 2}"
_SHAPES = {
    CursorType.DATE: _DATE_SHAPE,
    CursorType.TIMESTAMP: f"{_DATE_SHAPE} {_DIGIT * 2}:{_DIGIT * 2}:{_DIGIT * 2}.{_DIGIT * 6}",
    CursorType.TIMESTAMPTZ: f"{_DATE_SHAPE} {_DIGIT * 2}:{_DIGIT * 2}:{_DIGIT * 2}.{_DIGIT * 6}",
    CursorType.UUID: f"{_HEX * 8}-{_HEX * 4}-{_HEX * 4}-{_HEX * 4}-{_HEX * 12}",
}


def comparable(subject: Subject) -> Condition:
    """The cursor in a form whose order Python and the database agree on."""
    cursor: Condition = bare(subject)
    if subject.dialect in jdbc_sql.DIALECTS:
        return jdbc_sql.comparable(subject, cursor)
    if subject.kind is CursorType.STRING:
        if subject.padded:
            cursor = cast(cursor, "text")
        order = exp.var("BINARY") if subject.dialect == "sqlite" else exp.column("C", quoted=True)
        return exp.Collate(this=cursor, expression=order)
    if subject.dialect == "sqlite" and subject.kind in _TIMES:
        plain = _plain_time(subject)
        dot = exp.Case(
            ifs=[exp.If(this=exp.EQ(this=call("length", plain), expression=number_(19)), true=exp.Literal.string("."))],
            default=exp.Literal.string(""),
        )
        padded = exp.DPipe(this=exp.DPipe(this=plain, expression=dot), expression=exp.Literal.string("000000"))
        return call("substr", padded, number_(1), number_(26))
    return cursor


def literal(subject: Subject, value: CursorValue) -> Condition:
    """A cursor value as SQL."""
    if subject.kind in (CursorType.INTEGER, CursorType.DECIMAL):
        return exp.Literal.number(f"{value:f}" if subject.kind is CursorType.DECIMAL else str(value))
    if subject.dialect in jdbc_sql.DIALECTS:
        return jdbc_sql.literal(subject, value)
    if subject.dialect == "sqlite":
        return exp.Literal.string(sqlite_text(subject.kind, value))
    text = exp.Literal.string(subject.kind.to_text(value))
    return cast(text, _CASTS[subject.kind]) if subject.kind in _CASTS else text


def sqlite_text(kind: CursorType, value: CursorValue) -> str:
    """A value as `comparable` gives it in SQLite."""
    if isinstance(value, uuid.UUID):
        return str(value)
    text = kind.to_text(value)
    return text.replace("T", " ")[:26] if kind in _TIMES else text


def index_bound(subject: Subject, value: CursorValue) -> list[Condition]:
    """For SQLite's times a second bound on the bare column, never tighter than the first, that an index serves."""
    if subject.dialect != "sqlite" or subject.kind not in _TIMES:
        return []
    # Up to the second, with a blank: it sorts before both "T" and every longer text of that second.
    second = sqlite_text(subject.kind, value)[:19]
    return [exp.GTE(this=bare(subject), expression=exp.Literal.string(second))]


def strays(subject: Subject) -> list[Condition]:
    """Conditions for cursor values of another storage class than the type's (SQLite).

    SQLite sorts NULL, numbers, texts and blobs one after the other, so an index finds them.
    """
    texts = exp.GTE(this=bare(subject), expression=exp.Literal.string(""))
    if subject.kind in (CursorType.INTEGER, CursorType.DECIMAL):
        return [texts]
    numbers = exp.LT(this=bare(subject), expression=exp.Literal.string(""))
    return [numbers, exp.GTE(this=bare(subject), expression=exp.HexString(this=""))]


def misshapen(subject: Subject) -> Condition | None:
    """The condition for cursor values whose order is not the order of their type (SQLite); None: all are fine."""
    if subject.kind is CursorType.INTEGER:
        return exp.EQ(this=call("typeof", bare(subject)), expression=exp.Literal.string("real"))
    shape = _SHAPES.get(subject.kind)
    if shape is None:
        return None
    wrong: Condition = exp.Not(this=exp.Glob(this=comparable(subject), expression=exp.Literal.string(shape)))
    if subject.kind in _TIMES:
        # More than six digits of a second would be cut off.
        wrong = exp.or_(wrong, exp.GT(this=call("length", _plain_time(subject)), expression=number_(26)))
    return wrong


def bare(subject: Subject) -> exp.Column:
    return exp.column(identifier(subject.cursor))


def identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def cast(what: Condition, to: str) -> exp.Cast:
    return exp.Cast(this=what, to=exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=to))


def call(name: str, *arguments: Condition) -> Condition:
    return exp.Anonymous(this=name, expressions=list(arguments))


def number_(value: int) -> Condition:
    return exp.Literal.number(value)


def _plain_time(subject: Subject) -> Condition:
    """SQLite's times are texts: one separator, no zone, so that their order is the order of times."""
    plain = call("replace", bare(subject), exp.Literal.string("T"), exp.Literal.string(" "))
    if subject.kind is CursorType.TIMESTAMPTZ:
        for zone in ("Z", "+00:00"):
            plain = call("replace", plain, exp.Literal.string(zone), exp.Literal.string(""))
    return plain
