"""Where PostgreSQL rows that commit late can still appear: the low edge of a poll (G6). Pure functions.

A transaction may take a number from a sequence, or the time, and commit long after others that took later
ones. Transaction numbers tell such rows apart, but have no index. So each poll also works out a value of the
cursor below which nothing can come any more; the next poll looks for late rows only above it. The steps, in
this order, each in a snapshot of its own:

 0. `tick`: the sequence's last value, or the server's clock. Whoever begins later gets greater values.
 1. the transactions that are open in this database, prepared ones too
 2. which of the recent transactions have committed
 3. the snapshot that is read

A transaction that is not committed in step 2 was open in step 1, or began after it. In the second case its
values are above `tick`. In the first case they are above the edge that was remembered for it, or, when the
previous poll did not list it, above the previous poll's tick. The low edge is the least of these.

What this rests on, and the catalog is asked for it: the sequence hands out numbers one by one upwards
(CACHE 1, INCREMENT 1, no CYCLE), or the column's default is the clock. Numbers that applications keep for
later, or set by hand below the sequence, need `late: scan`. A sequence or table that was reset is noticed
and answered by one full look. Sessions on a standby's primary cannot be listed: there, too, it is the scan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headwater.model.cursor import CursorType, CursorValue
from headwater.model.errors import SourceChanged
from headwater.model.marks import ColumnMark, Json
from headwater.sources.sql.relation import Relation, Ticker

# Ages of transactions are counted in 31 bits: a mark must not grow older than that.
OLDEST = 1 << 31
# A mark that found nothing new for so many transactions is renewed.
RENEWED_AFTER = 1 << 29
# A statement's time is taken a moment before its transaction can be listed, and clocks are adjusted.
CLOCK_SLACK = dt.timedelta(seconds=5)
# A wall clock without zone is written by sessions of any zone: the westernmost is twelve hours behind.
WESTERNMOST = dt.timedelta(hours=12)


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction of this database that has not ended."""

    id: str  # process and start, or the number of a prepared one: the same at every poll
    began: dt.datetime | None  # None for a prepared one
    pid: int = 0


@dataclass(frozen=True)
class Bounds:
    """What a mark keeps beside its transaction numbers; the JSON of `SnapshotSeen.bounds`."""

    low: CursorValue | None = None  # nothing new can come at or below it; None: anywhere
    tick: CursorValue | None = None  # whoever begins after this poll gets greater values; None: unknown
    open: Mapping[str, CursorValue | None] = field(default_factory=dict)  # edges of the open transactions
    floor: CursorValue | None = None  # the first run's `start:`: at or below it nothing is wanted
    view: str = ""  # the snapshot, when all that it shows has been looked at: the same again means nothing new
    storage: str = ""
    cut: bool = False  # max_rows left rows behind
    placed: bool = False  # `latest`: the window up to this mark is empty by definition
    swept: bool = False  # the window up to this mark looked everywhere for late rows

    def to_json(self, kind: CursorType) -> dict[str, Json]:
        def value(edge: CursorValue | None) -> Json:
            return None if edge is None else kind.to_json(edge)

        data = {
            "low": value(self.low),
            "tick": value(self.tick),
            "open": {name: value(edge) for name, edge in self.open.items()},
            "floor": value(self.floor),
            "view": self.view,
            "storage": self.storage,
            "cut": self.cut,
            "placed": self.placed,
            "swept": self.swept,
        }
        return {name: content for name, content in data.items() if content not in (None, "", False, {})}

    @classmethod
    def of(cls, mark: ColumnMark | None) -> Bounds:
        """Those of a mark; of none, or of one without a snapshot, the ones that claim nothing."""
        if mark is None or mark.snapshot is None:
            return cls()
        data, kind = mark.snapshot.bounds, mark.type

        def value(edge: Json) -> CursorValue | None:
            return None if edge is None else kind.from_json(edge)

        return cls(
            low=value(data.get("low")),
            tick=value(data.get("tick")),
            open={name: value(edge) for name, edge in data.get("open", {}).items()},
            floor=value(data.get("floor")),
            view=data.get("view", ""),
            storage=data.get("storage", ""),
            cut=data.get("cut", False),
            placed=data.get("placed", False),
            swept=data.get("swept", False),
        )


def clock_tick(ticker: Ticker, now: dt.datetime) -> CursorValue:
    """A value that no transaction which begins after `now` (UTC) falls below or meets."""
    wall = now.astimezone(dt.UTC).replace(tzinfo=None)
    match ticker.kind:
        case "instant":
            return now.astimezone(dt.UTC) - CLOCK_SLACK
        case "wall clock":
            return wall - CLOCK_SLACK
        case "any wall clock":
            return wall - WESTERNMOST - CLOCK_SLACK
        case _:
            return (wall - WESTERNMOST - CLOCK_SLACK).date() - dt.timedelta(days=1)


def edges(
    ticker: Ticker,
    previous: Bounds,
    known: Sequence[OpenTransaction],
    now_open: Sequence[OpenTransaction],
    tick: CursorValue,
) -> dict[str, CursorValue | None]:
    """The value above which each open transaction writes; None: it may write anywhere.

    `known` were open before `tick` was taken, as far as the caller has looked; a transaction of `now_open`
    that is not among them began afterwards.
    """
    before = {transaction.id for transaction in known}
    found: dict[str, CursorValue | None] = {}
    for transaction in now_open:
        if transaction.id in previous.open:
            found[transaction.id] = previous.open[transaction.id]
        elif transaction.began is None:
            # Prepared: it may be any of those that the previous poll listed, under a name it no longer has.
            found[transaction.id] = previous.low
        elif ticker.kind != "sequence":
            found[transaction.id] = clock_tick(ticker, transaction.began)
        else:
            found[transaction.id] = previous.tick if transaction.id in before else tick
    return found


def low_edge(kind: CursorType, tick: CursorValue, open_edges: Mapping[str, CursorValue | None]) -> CursorValue | None:
    """The least of the tick and the edges; None as soon as one of them is unknown."""
    values = [tick]
    for edge in open_edges.values():
        if edge is None:
            return None
        values.append(edge)
    return min(values, key=kind.order)


def was_reset(previous: Bounds, storage: str, tick: CursorValue | None, kind: CursorType) -> bool:
    """Whether the table or its sequence began anew since the previous poll, so that old values may come again."""
    if previous.storage and previous.storage != storage:
        return True
    return tick is not None and previous.tick is not None and kind.order(tick) < kind.order(previous.tick)


def check_same_database(stream: str, mark: ColumnMark | None, cluster: str) -> None:
    """G9: transaction numbers of another server, or of another database, would hide rows."""
    if mark is not None and mark.snapshot is not None and mark.snapshot.cluster != cluster:
        raise SourceChanged(
            f"{stream}: the mark was taken from database {mark.snapshot.cluster}, this is {cluster}",
            hint=f"point url at the former server, or {way_out(mark)}",
        )


def way_out(mark: ColumnMark) -> str:
    return f"rewind the pipeline to a value you trust, for example --to {mark.value}"


def another_way(relation: Relation, start: ColumnMark | None, other: object) -> tuple[str, ...]:
    """What changes when the way to find late rows was changed since the mark was made."""
    if start is None or other is None:
        return ()
    text = (
        "the mark was made with another setting of late; what commits late at or below it is not found in this window"
    )
    return (f"{relation.stream}: {text}",)
