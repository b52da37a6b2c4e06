"""The choice of the way to find late rows in a PostgreSQL relation (G6). A pure function of what the catalog says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.config.sql_source import Lookback
from headwater.model.cursor import CursorType
from headwater.model.errors import InputError
from headwater.sources.sql.relation import LateWay, Ticker

_NOW = r"(?:now\(\)|CURRENT_TIMESTAMP(?:\(\d\))?|(?:transaction|statement|clock)_timestamp\(\))"
_INSTANT = re.compile(rf"\(*{_NOW}\)*")
_UTC_WALL = re.compile(
    rf"\(?{_NOW} AT TIME ZONE '(?:utc|UTC|Etc/UTC)'::text\)?|timezone\('(?:utc|UTC|Etc/UTC)'::text, {_NOW}\)"
)
_ANY_WALL = re.compile(rf"\(*(?:{_NOW}|LOCALTIMESTAMP(?:\(\d\))?)\)*(?:::timestamp(?:\(\d\))? without time zone)?\)*")
_DATE = re.compile(rf"\(*(?:{_NOW}|CURRENT_DATE)\)*(?:::date)?\)*")
_CLOCKS = (
    (CursorType.TIMESTAMPTZ, _INSTANT, Ticker("instant")),
    (CursorType.TIMESTAMP, _UTC_WALL, Ticker("wall clock")),
    (CursorType.TIMESTAMP, _ANY_WALL, Ticker("any wall clock")),
    (CursorType.DATE, _DATE, Ticker("date")),
)
_NEXTVAL = re.compile(r"nextval\('.*'::regclass\)")


@dataclass(frozen=True)
class NumberSequence:
    """A sequence that numbers a column."""

    oid: int
    name: str
    increment: int
    cycles: bool
    cache: int
    readable: bool


@dataclass(frozen=True)
class CursorFacts:
    """What the catalog and the server say about a cursor and our rights."""

    stream: str
    kind: CursorType
    has_transactions: bool  # its rows carry transaction numbers: a table, no view, query or foreign table
    default: str = ""
    identity: bool = False
    sequence: NumberSequence | None = None
    role: str = ""
    sees_sessions: bool = True
    standby: bool = False


@dataclass(frozen=True)
class Choice:
    """The way taken, and why."""

    way: LateWay
    why: str
    ticker: Ticker | None = None
    warnings: tuple[str, ...] = ()


def choose_late(late: str | Lookback, facts: CursorFacts) -> Choice:
    """`auto` takes the bounded way only where it is sound; whatever is taken instead is said."""
    if isinstance(late, Lookback):
        return Choice("edge", f"late rows: what lies up to {late.lookback} below the mark is read again and compared")
    if late == "off":
        return Choice("off", "late rows: not looked for (late: off)")
    if not facts.has_transactions:
        if late == "scan":
            raise InputError(
                f"{facts.stream}: late: scan needs the transaction numbers of a table; a view, a query and a foreign "
                "table have none",
                hint="write late: {lookback: …}, or name the table",
            )
        return Choice(
            "edge",
            "late rows: only those that share the mark's value (no transaction numbers here)",
            warnings=_one(
                f"{facts.stream} is no plain table, so rows that commit late below the mark cannot be found; "
                "write late: {lookback: …} to read again what lies shortly below it",
            ),
        )
    if late == "scan":
        return Choice("scan", "late rows: by transaction number over the whole table (late: scan)")
    ticker, obstacle = _ticker(facts)
    if ticker is not None:
        return Choice(
            "bounded", f"late rows: by transaction number above the low edge ({_named(ticker, facts)})", ticker
        )
    return Choice(
        "scan",
        f"late rows: by transaction number over the whole table, because {obstacle}",
        warnings=_one(
            f"{facts.stream}: every poll with news looks through the whole table for late rows, because {obstacle}; "
            "write late: scan to accept it, or late: {lookback: …} to look only shortly below the mark",
        ),
    )


def _ticker(facts: CursorFacts) -> tuple[Ticker | None, str]:
    """What numbers the cursor, or the reason why the search cannot be bounded."""
    if facts.standby:
        return None, "this is a standby, where the open transactions of the primary cannot be listed"
    if not facts.sees_sessions:
        return None, f"the role may not see other sessions' transactions (GRANT pg_read_all_stats TO {facts.role})"
    if facts.kind is CursorType.INTEGER:
        return _sequence_ticker(facts)
    for kind, default, ticker in _CLOCKS:
        if facts.kind is kind and default.fullmatch(facts.default):
            return ticker, ""
    return None, "nothing in the catalog says that the cursor's values follow the order of transactions"


def _sequence_ticker(facts: CursorFacts) -> tuple[Ticker | None, str]:
    sequence = facts.sequence
    if sequence is None or not (facts.identity or _NEXTVAL.fullmatch(facts.default)):
        return None, "the cursor is not numbered by a sequence"
    if sequence.cache != 1:
        return (
            None,
            f"sequence {sequence.name} has CACHE {sequence.cache}: sessions use numbers long after they took them",
        )
    if sequence.increment != 1 or sequence.cycles:
        return None, f"sequence {sequence.name} does not count up one by one"
    if not sequence.readable:
        return None, f"the sequence's state may not be read (GRANT SELECT ON SEQUENCE {sequence.name} TO {facts.role})"
    return Ticker("sequence", sequence.oid), ""


def _named(ticker: Ticker, facts: CursorFacts) -> str:
    if ticker.kind == "sequence" and facts.sequence:
        return f"sequence {facts.sequence.name}"
    return {"instant": "server clock", "wall clock": "server clock", "date": "server clock, two days"}.get(
        ticker.kind, "server clock in any time zone, twelve hours"
    )


def _one(warning: str) -> tuple[str, ...]:
    return (warning,)
