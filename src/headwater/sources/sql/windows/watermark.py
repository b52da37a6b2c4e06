"""Cursor values, and the low watermark above which rows of a poll can still commit late (G6). Pure functions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.errors import BadPosition, InputError, NullCursor, SourceChanged, ValueNotKept
from headwater.model.position.marks import ColumnMark, Json
from headwater.model.position.seen_rows import SeenTransactions
from headwater.model.types import CursorType, CursorValue
from headwater.pg.names import did_you_mean
from headwater.sources.sql.database import Relation, Ticker

_TIMES = (CursorType.TIMESTAMP, CursorType.TIMESTAMPTZ)


def parse_value(relation: Relation, written: object) -> CursorValue:
    """The value of a text that the database made of a cursor. Refuses what a mark cannot hold (G8)."""
    cursor_type = relation.subject.cursor_type
    text = written if isinstance(written, str) else str(written)
    if cursor_type is CursorType.TIMESTAMPTZ and relation.subject.dialect != "postgres":
        text += "+00:00"
    try:
        return cursor_type.from_json(text.replace(" ", "T", 1) if cursor_type in _TIMES else text)
    except ValueError:
        name = relation.subject.cursor
        raise ValueNotKept(
            f"{relation.stream}: the cursor {name} has the value {text}, which cannot be a mark of type {cursor_type.value}",
            hint=f"correct the row, or exclude such rows, for example where: {name} < …",
        ) from None


def start_value(relation: Relation, settings: SqlSourceSettings) -> CursorValue | None:
    """`start:` as a value of the cursor's type; None: everything."""
    if settings.start is None or settings.start == "latest":
        return None
    try:
        return relation.subject.cursor_type.from_json(settings.start)
    except ValueError as error:
        raise InputError(
            f"{relation.stream}: start: {error}", hint="write a value of the cursor's type, or latest"
        ) from None


def check_nulls(relation: Relation, setting: str, count: int) -> tuple[str, ...]:
    """The warning for `ignore`, the error for `fail`, nothing for `read`; `count` excludes rows counted before."""
    if not count or setting == "read":
        return ()
    rows = f"{count} row{'s' if count != 1 else ''}"
    cursor = relation.subject.cursor
    if setting == "fail":
        raise NullCursor(
            f"{relation.stream}: {rows} without a value in the cursor {cursor}",
            hint="set a value, or write nulls: read (each once) or nulls: ignore",
        )
    return (f"{relation.stream}: {rows} without a value in the cursor {cursor} skipped (nulls: ignore)",)


def strategy_warnings(relation: Relation, start: ColumnMark | None, foreign: object) -> tuple[str, ...]:
    """The warning if another strategy made the start: `foreign` is that strategy's field of the mark."""
    if start is None or foreign is None:
        return ()
    text = "the mark was made with another setting of late; this window misses rows that commit late at or below it"
    return (f"{relation.stream}: {text}",)


def rewound_marks(
    text: str, relations: Sequence[Relation], marks: Mapping[str, ColumnMark], *, single: bool
) -> dict[str, ColumnMark]:
    """A value for all streams, or `stream=value[,stream=value]`; streams that are not named keep their mark.

    `marks` are those whose transaction ids are still valid; the others become new marks at the value.
    """
    streams = {relation.stream: relation for relation in relations}
    values = {} if single else _values_by_stream(text, streams)
    if not values:
        return {stream: _rewound_mark(relation, text, marks.get(stream)) for stream, relation in streams.items()}
    rewound = {stream: _rewound_mark(streams[stream], value, marks.get(stream)) for stream, value in values.items()}
    return {**marks, **rewound}


def _values_by_stream(text: str, streams: Mapping[str, Relation]) -> dict[str, str]:
    if "=" not in text:
        return {}
    values = {}
    for assignment in text.split(","):
        stream, sign, value = assignment.partition("=")
        if not sign or stream.strip() not in streams:
            raise BadPosition(
                f"{assignment.strip()!r} does not name a stream and a value",
                hint=f"write stream=value; {did_you_mean(stream.strip(), list(streams))}",
            )
        values[stream.strip()] = value.strip()
    return values


def _rewound_mark(relation: Relation, text: str, mark: ColumnMark | None) -> ColumnMark:
    """The mark moved to a value: rows above are read again, late rows below are still found.

    Moved forward, rows up to the value are excluded, late or not.
    """
    subject = relation.subject
    try:
        value = subject.cursor_type.from_json(text)
    except ValueError as error:
        raise BadPosition(
            f"{relation.stream}: {error}", hint="write start, latest, or a value of the cursor's type"
        ) from None
    if mark is None or (mark.column, mark.type) != (subject.cursor, subject.cursor_type):
        return ColumnMark(subject.cursor, subject.cursor_type, value)
    if mark.snapshot is None:
        return replace(mark, value=value, edge=None)
    order, bounds = mark.type.order, Bounds.of(mark)
    forward = mark.value is not None and order(value) > order(mark.value)
    floor = value if forward or (bounds.floor is not None and order(value) < order(bounds.floor)) else bounds.floor
    bounds = replace(bounds, floor=floor, view="", cut=False, placed=False, swept=False)
    return replace(mark, value=value, snapshot=replace(mark.snapshot, bounds=bounds.to_json(mark.type)), edge=None)


# A transaction may take a number from a sequence, or the time, and commit long after others that took later
# ones. Transaction ids tell such rows apart, but have no index. So each poll also computes a value of the
# cursor below which no row can appear any more; the next poll searches for late rows only above it. The steps, in
# this order, each in a snapshot of its own:
#
#  0. `tick`: the sequence's last value, or the server's clock. A transaction that begins later gets greater values.
#  1. the transactions that are open in this database, prepared ones too
#  2. which of the recent transactions have committed
#  3. the snapshot that is read
#
# A transaction that is not committed in step 2 was open in step 1, or began after it. In the second case its
# values are above `tick`. In the first case they are above the watermark that was stored for it, or, when the
# previous poll did not list it, above the previous poll's tick. The low watermark is the least of these.
#
# The catalog must confirm the premise: the sequence hands out numbers one by one upwards
# (CACHE 1, INCREMENT 1, no CYCLE), or the column's default is the clock. Numbers that applications reserve for
# later, or set by hand below the sequence, need `late: scan`. A sequence or table that was reset is detected,
# and one poll searches all of it. Sessions on a standby's primary cannot be listed: a standby needs the scan, too.

# A statement's time is taken a moment before its transaction can be listed, and clocks are adjusted.
CLOCK_SLACK = dt.timedelta(seconds=5)
# A wall clock without zone is written by sessions of any zone: the westernmost is twelve hours behind.
WESTERNMOST = dt.timedelta(hours=12)


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction of this database that has not ended."""

    id: str  # process and start, or the id of a prepared one: the same at every poll
    began: dt.datetime | None  # None for a prepared one
    pid: int = 0


@dataclass(frozen=True)
class Bounds:
    """The rest of a mark by transaction ids: the JSON of `SeenTransactions.bounds`."""

    low: CursorValue | None = None  # no new row can appear at or below it; None: anywhere
    tick: CursorValue | None = None  # transactions that begin after this poll get greater values; None: unknown
    open: Mapping[str, CursorValue | None] = field(default_factory=dict)  # watermarks of the open transactions
    floor: CursorValue | None = None  # the first run's `start:`: rows at or below it are excluded
    view: str = ""  # the snapshot, when the window covers all it shows: the same snapshot again has nothing new
    storage: str = ""
    cut: bool = False  # max_rows left rows behind
    placed: bool = False  # `latest`: the window up to this mark is empty by definition
    swept: bool = False  # the window up to this mark searched the whole table for late rows

    def to_json(self, cursor_type: CursorType) -> dict[str, Json]:
        def value(bound: CursorValue | None) -> Json:
            return None if bound is None else cursor_type.to_json(bound)

        data = {
            "low": value(self.low),
            "tick": value(self.tick),
            "open": {name: value(watermark) for name, watermark in self.open.items()},
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
        """The bounds of a mark; without a mark or its transaction ids, empty ones."""
        if mark is None or mark.snapshot is None:
            return cls()
        data, cursor_type = mark.snapshot.bounds, mark.type

        def value(bound: Json) -> CursorValue | None:
            return None if bound is None else cursor_type.from_json(bound)

        return cls(
            low=value(data.get("low")),
            tick=value(data.get("tick")),
            open={name: value(bound) for name, bound in data.get("open", {}).items()},
            floor=value(data.get("floor")),
            view=data.get("view", ""),
            storage=data.get("storage", ""),
            cut=data.get("cut", False),
            placed=data.get("placed", False),
            swept=data.get("swept", False),
        )


@dataclass(frozen=True)
class SettledTransactions:
    """Which transactions are settled: all below `horizon` but the pending ones."""

    horizon: int
    pending: tuple[int, ...]
    lowered: bool = False  # some settled ones are missing, because there were too many


@dataclass(frozen=True)
class TransactionPoll:
    """The server's transactions at one moment, before the view that is read."""

    cluster: str  # the server and its database
    standby: bool
    settled: SettledTransactions
    view: str  # the snapshot's text, if no transaction ended between the list of transactions and the view
    ticks: Mapping[str, CursorValue]  # by stream
    open_before: tuple[OpenTransaction, ...]  # when the ticks were taken
    open: tuple[OpenTransaction, ...]
    warnings: tuple[str, ...] = ()

    def bounds(self, relation: Relation, previous: Bounds, fingerprint: str) -> Bounds:
        """The bounds of a stream's next mark; a reset table is treated as one that was never polled."""
        cursor_type, tick = relation.subject.cursor_type, self.ticks.get(relation.stream)
        view = f"{self.view}/{fingerprint}" if self.view else ""
        reset = was_reset(previous, relation.storage, tick, cursor_type)
        bounds = Bounds(floor=previous.floor, view=view, storage=relation.storage, swept=reset)
        if relation.ticker is None or tick is None:
            return bounds
        before = Bounds() if reset else previous
        watermarks = open_watermarks(relation.ticker, before, self.open_before, self.open, tick)
        low = None if self.settled.lowered else low_watermark(cursor_type, tick, watermarks)
        return replace(bounds, low=low, tick=tick, open=watermarks)

    def seen(self, relation: Relation, bounds: Bounds) -> SeenTransactions:
        """The mark's field for this poll."""
        bounds_json = bounds.to_json(relation.subject.cursor_type)
        return SeenTransactions(self.cluster, self.settled.horizon, self.settled.pending, bounds_json)


def clock_tick(ticker: Ticker, now: dt.datetime) -> CursorValue:
    """A value that every transaction which begins after `now` (UTC) exceeds."""
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


def open_watermarks(
    ticker: Ticker,
    previous: Bounds,
    open_before: Sequence[OpenTransaction],
    now_open: Sequence[OpenTransaction],
    tick: CursorValue,
) -> dict[str, CursorValue | None]:
    """The value above which each open transaction writes; None: it may write anywhere.

    `open_before` are those that were open before `tick` was taken; any other transaction of `now_open` began afterwards.
    """
    ids_before = {transaction.id for transaction in open_before}
    watermarks: dict[str, CursorValue | None] = {}
    for transaction in now_open:
        if transaction.id in previous.open:
            watermarks[transaction.id] = previous.open[transaction.id]
        elif transaction.began is None:
            # Prepared: it may be any of those that the previous poll listed, under a name it no longer has.
            watermarks[transaction.id] = previous.low
        elif ticker.kind != "sequence":
            watermarks[transaction.id] = clock_tick(ticker, transaction.began)
        else:
            watermarks[transaction.id] = previous.tick if transaction.id in ids_before else tick
    return watermarks


def low_watermark(
    cursor_type: CursorType, tick: CursorValue, watermarks: Mapping[str, CursorValue | None]
) -> CursorValue | None:
    """The least of the tick and the open transactions' watermarks; None as soon as one of them is unknown."""
    values = [tick]
    for watermark in watermarks.values():
        if watermark is None:
            return None
        values.append(watermark)
    return min(values, key=cursor_type.order)


def was_reset(previous: Bounds, storage: str, tick: CursorValue | None, cursor_type: CursorType) -> bool:
    """True if the table or its sequence was reset since the previous poll, so that old values may repeat."""
    if previous.storage and previous.storage != storage:
        return True
    order = cursor_type.order
    return tick is not None and previous.tick is not None and bool(order(tick) < order(previous.tick))


def check_same_database(stream: str, mark: ColumnMark | None, cluster: str) -> None:
    """G9: transaction ids of another server, or of another database, would hide rows."""
    if mark is not None and mark.snapshot is not None and mark.snapshot.cluster != cluster:
        raise SourceChanged(
            f"{stream}: the mark was taken from database {mark.snapshot.cluster}, this is {cluster}",
            hint=f"point url at the former server, or {rewind_hint(mark)}",
        )


def rewind_hint(mark: ColumnMark) -> str:
    return f"rewind the pipeline to a value you trust, for example --to {mark.value}"
