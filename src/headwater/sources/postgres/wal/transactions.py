"""The messages of a slot, by a peek that leaves the slot where it is, and the transaction that each belongs to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
import psycopg
from psycopg import sql

from headwater.model.errors import RunError, SourceChanged
from headwater.model.position.lsn import lsn_text
from headwater.pg.connection import COPY_AGAIN, SESSION, Connection, session_sql, translate
from headwater.pg.copy.binary import PADDING, Numbers
from headwater.pg.copy.reader import DEFAULT as COPY
from headwater.pg.copy.reader import CopyReader
from headwater.pg.copy.reader import Tuning as CopyTuning
from headwater.pg.copy.stream import Chunk, CopyRefused
from headwater.sources.postgres.catalog import Commit
from headwater.sources.postgres.wal import messages as wire


@dataclass(frozen=True)
class Tuning:
    """Bytes are of messages as the server sends them."""

    copy: CopyTuning = COPY
    piece_bytes: int = 8 << 20  # processed at once; a single message may be larger
    batch_bytes: int = 4 << 20  # decoded at once, per layout
    pending_bytes: int = 64 << 20  # not decoded yet, of all layouts together
    split_rows: int = 200_000  # with fewer a second task costs more than it saves


DEFAULT = Tuning()


# The server decodes the whole peek into a temporary file of its own before it sends the first message, in its session's
# settings. Then COPY brings the messages, a few megabytes at a time.

_HEAD = 4  # of a row's one field: its length
_MAX_CHANGES = 2**31 - 1
_FIRST_WITH_MESSAGES = 140_000


@dataclass(frozen=True)
class Peek:
    """A request to a slot: transactions up to an LSN, or until there are so many changes.

    The server checks both only between two transactions.
    """

    slot: str
    publication: str
    upto: int | None = None
    changes: int | None = None


@dataclass(frozen=True)
class Messages:
    """Some messages in their order, valid until the next are read."""

    data: Numbers  # with PADDING bytes after the last message
    starts: Numbers
    ends: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> Messages:
        return Messages(self.data, self.starts[:count], self.ends[:count])


def read_slot(connection: Connection, peek: Peek, tuning: Tuning = DEFAULT) -> Generator[Messages, None, None]:
    """The messages of a peek. The connection is idle again after the last of them."""
    try:
        connection.execute(session_sql({**SESSION, "statement_timeout": "0"}))
        connection.execute("SET client_encoding TO 'UTF8'")
        _check_publication(connection, peek)
        query = peek_sql(peek, connection.info.server_version)
        for chunk in CopyReader(connection, tuning.copy).chunks(query, fields=1):
            yield from cut_pieces(_messages(chunk), tuning.piece_bytes)
    except (psycopg.Error, CopyRefused, OSError) as error:
        raise translate(error, f"slot {peek.slot}", "read slot") from None


def _check_publication(connection: Connection, peek: Peek) -> None:
    """PostgreSQL 18 only warns of a missing publication, and returns nothing."""
    query = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s"
    if not connection.execute(query, [peek.publication]).fetchone():
        raise SourceChanged(
            f"slot {peek.slot}: publication {peek.publication} does not exist",
            hint=f"changes since it was dropped cannot be read; {COPY_AGAIN}",
        )


def peek_sql(peek: Peek, server_version: int) -> str:
    """One column: each message names its transaction itself."""
    publication = '"' + peek.publication.replace('"', '""') + '"'  # a list of names as SQL writes them, in a text
    options = ["proto_version", "1", "publication_names", publication]
    if server_version >= _FIRST_WITH_MESSAGES:
        options += ["messages", "true"]
    upto = "NULL" if peek.upto is None else f"'{lsn_text(peek.upto)}'"
    changes = "NULL" if peek.changes is None else str(min(peek.changes, _MAX_CHANGES))
    texts = ", ".join(sql.Literal(option).as_string() for option in options)
    slot = sql.Literal(peek.slot).as_string()
    return f"SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}, {changes}, {texts})"  # noqa: S608


def _messages(chunk: Chunk) -> Messages:
    return Messages(np.frombuffer(chunk.data, np.uint8), chunk.starts + _HEAD, chunk.ends)


def cut_pieces(chunk: Messages, piece_bytes: int) -> Iterator[Messages]:
    """Cut a chunk, which grows with its largest message: Arrow's offsets have 32 bits, and memory stays flat."""
    begin = 0
    while begin < len(chunk):
        base = int(chunk.starts[begin])
        until = max(int(np.searchsorted(chunk.ends, base + piece_bytes, side="right")), begin + 1)
        data = chunk.data[base : int(chunk.ends[until - 1]) + PADDING]
        yield Messages(data, chunk.starts[begin:until] - base, chunk.ends[begin:until] - base)
        begin = until


# Messages come in chunks, and a transaction may span many of them. Only its commit message, after all of its rows, says
# where its commit record ends.

_ROWS = np.zeros(256, np.bool_)
_ROWS[[wire.INSERT, wire.UPDATE, wire.DELETE, wire.TRUNCATE]] = True


@dataclass(frozen=True)
class WalMessage:
    """A logical message that a transaction wrote for us."""

    commit: Commit
    prefix: str
    content: bytes


@dataclass(frozen=True)
class MessagePositions:
    """Messages, and for each its transaction and its number there.

    Rows of every table count, wanted or not: a read for other tables must assign the same numbers.
    """

    messages: Messages
    letters: Numbers
    lsns: Numbers  # of the commit record
    times: Numbers
    transactions: Numbers
    numbers: Numbers  # from 1

    def message(self, index: int) -> bytes:
        return self.messages.data[self.messages.starts[index] : self.messages.ends[index]].tobytes()

    def first(self, count: int) -> MessagePositions:
        arrays = (self.letters, self.lsns, self.times, self.transactions, self.numbers)
        return MessagePositions(self.messages.first(count), *(array[:count] for array in arrays))


@dataclass
class _Open:
    """The last transaction that began, and whether its commit is still to come."""

    lsn: int = 0
    time: int = 0
    transaction: int = 0
    rows: int = 0
    is_open: bool = False
    notes: list[wire.Note] = field(default_factory=list)


class Transactions:
    """Follows the messages of one peek; `after` is the end of the last known transaction."""

    def __init__(self, after: int, upto: int | None, stop: Callable[[WalMessage], bool]) -> None:
        self._after, self._upto, self._stop = after, upto, stop
        self._open = _Open()
        self.first: Commit | None = None
        self.last: Commit | None = None
        self.last_known: Commit | None = None
        self.first_new: Commit | None = None
        self.count = 0
        self.messages = 0
        self.notes: list[WalMessage] = []
        self.ended = False  # the rest is not wanted

    def follow(self, messages: Messages) -> MessagePositions:
        """The wanted messages with their positions."""
        positions = self._positions(messages)
        positions = positions.first(self._before_upto(positions))
        commits = _commits(positions)
        self._check(positions, commits)
        wanted = self._collect_notes(positions, commits)
        positions, commits = positions.first(wanted), commits.before(wanted)
        self._count(commits)
        if wanted:
            self._remember_open(positions, commits)
        return positions

    def finish(self) -> None:
        """A peek brings whole transactions."""
        if self._open.is_open:
            raise RunError(f"the WAL broke off inside the transaction at {lsn_text(self._open.lsn)}")

    def _positions(self, messages: Messages) -> MessagePositions:
        letters = wire.letters(messages.data, messages.starts)
        begins = letters == wire.BEGIN
        heads = wire.read(messages.data, messages.starts[begins], wire.BEGINS)
        transaction_numbers = np.cumsum(begins)  # 0: of the transaction that began before
        row_counts = np.cumsum(_ROWS[letters])
        before = np.concatenate([[-self._open.rows], row_counts[begins]])
        return MessagePositions(
            messages,
            letters,
            _prepend(self._open.lsn, heads["lsn"])[transaction_numbers],
            _prepend(self._open.time, heads["time"].astype(np.int64) + wire.EPOCH)[transaction_numbers],
            _prepend(self._open.transaction, heads["transaction"])[transaction_numbers],
            row_counts - before[transaction_numbers],
        )

    def _before_upto(self, positions: MessagePositions) -> int:
        """The number of messages of transactions before `upto`: the server may send one more transaction."""
        if self._upto is None:
            return len(positions.letters)
        beyond = np.flatnonzero((positions.letters == wire.BEGIN) & (positions.lsns >= self._upto))
        if not len(beyond):
            return len(positions.letters)
        self.ended = True
        return int(beyond[0])

    def _collect_notes(self, positions: MessagePositions, commits: _Commits) -> int:
        """Collect our notes; return the number of wanted messages."""
        indices = np.flatnonzero(positions.letters == wire.MESSAGE)
        if len(indices):
            indices = indices[wire.ours(positions.messages.data, positions.messages.starts[indices])]
        indices = indices[positions.lsns[indices] >= self._after]  # marks are ends of commits: this one ends later
        pending = [(-1, note) for note in self._open.notes]
        pending += [(index, wire.note(positions.message(index))) for index in indices.tolist()]
        self._open.notes = []
        stop = -1  # the last commit that is wanted
        for index, note in pending:
            number = int(np.searchsorted(commits.indices, index))
            if 0 <= stop < number:
                break
            if number == len(commits.indices):
                self._open.notes.append(note)
                continue
            message = WalMessage(commits.at(number), *note)
            self.notes.append(message)
            if self._stop(message):
                stop = number
        if stop < 0:
            return len(positions.letters)
        self.ended, self._open.notes = True, []
        return int(commits.indices[stop]) + 1

    def _count(self, commits: _Commits) -> None:
        if not len(commits.indices):
            return
        self.first = self.first or commits.at(0)
        self.last = commits.at(-1)
        self.count += len(commits.indices)
        known = int(np.searchsorted(commits.lsns, self._after))  # marks are ends of commits: those before it are known
        if known:
            self.last_known = commits.at(known - 1)
        if known < len(commits.indices):
            self.first_new = self.first_new or commits.at(known)

    def _remember_open(self, positions: MessagePositions, commits: _Commits) -> None:
        """Remember the transaction that the next messages may belong to."""
        self.messages += len(positions.letters)
        begun = int((positions.letters == wire.BEGIN).sum()) + self._open.is_open
        lsn, time, transaction, rows = (
            int(array[-1]) for array in (positions.lsns, positions.times, positions.transactions, positions.numbers)
        )
        self._open = _Open(lsn, time, transaction, rows, begun > len(commits.indices), self._open.notes)

    def _check(self, positions: MessagePositions, commits: _Commits) -> None:
        """Every transaction ends before the next begins, with the commit that it was begun with."""
        edges = positions.letters[(positions.letters == wire.BEGIN) | (positions.letters == wire.COMMIT)]
        expected = np.array([wire.BEGIN, wire.COMMIT], np.uint8)
        if self._open.is_open:
            expected = expected[::-1]
        in_turn = np.resize(expected, len(edges))
        if not np.array_equal(edges, in_turn) or not np.array_equal(commits.lsns, commits.begun):
            raise RunError("the WAL holds a transaction that does not end as it began")


@dataclass(frozen=True)
class _Commits:
    """The commits among some messages."""

    indices: Numbers
    lsns: Numbers
    ends: Numbers
    begun: Numbers  # the LSN of the commit in the begin message
    transactions: Numbers
    times: Numbers

    def at(self, number: int) -> Commit:
        arrays = (self.lsns, self.ends, self.transactions, self.times)
        return Commit(*(int(array[number]) for array in arrays))

    def before(self, index: int) -> _Commits:
        count = int(np.searchsorted(self.indices, index))
        arrays = (self.indices, self.lsns, self.ends, self.begun, self.transactions, self.times)
        return _Commits(*(array[:count] for array in arrays))


def _commits(positions: MessagePositions) -> _Commits:
    indices = np.flatnonzero(positions.letters == wire.COMMIT)
    fields = wire.read(positions.messages.data, positions.messages.starts[indices], wire.COMMITS)
    return _Commits(
        indices,
        fields["lsn"].astype(np.int64),
        fields["end"].astype(np.int64),
        positions.lsns[indices],
        positions.transactions[indices],
        positions.times[indices],
    )


def _prepend(before: int, numbers: Numbers) -> Numbers:
    return np.concatenate([[before], numbers]).astype(np.int64)
