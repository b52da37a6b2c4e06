"""The messages of a replication slot, looked at and not taken: a peek leaves the slot where it is.

The server decodes the whole peek into a temporary file of its own before it sends the first message, in its session's
settings. Then COPY brings the messages, a few megabytes at a time.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from headwater.model.errors import HeadwaterError, RunError, SourceChanged, SourceUnreachable
from headwater.model.lsn import lsn_text
from headwater.model.secret import Secret, masked
from headwater.sources.sql.copy_binary import PADDING, Numbers
from headwater.sources.sql.copy_stream import CopyRefused, can_copy, copy_rows
from headwater.sources.sql.postgres_session import set_session

_PIECE = 8 << 20  # bytes of messages that are worked on at once; one message alone may be larger
_HEAD = 4  # of a row's one field: its length
_SIGNATURE = 19  # of COPY's binary format, before its first row
_ROW = b"\0\1"  # a row of one field
_MOST_CHANGES = 2**31 - 1
_FIRST_WITH_MESSAGES = 140_000
_COPY_ANEW = "copy the tables anew: headwater rewind PIPELINE --to snapshot"
_STATE = re.compile(r"\((\w{5})\)$")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Peek:
    """What is asked of a slot: transactions up to a place in the log, or until there are so many changes.

    The server looks at both only between two transactions.
    """

    slot: str
    publication: str
    upto: int | None = None
    changes: int | None = None


@dataclass(frozen=True)
class Messages:
    """Some messages in their order, good until the next are asked for."""

    data: Numbers  # with PADDING bytes behind the last message
    starts: Numbers
    ends: Numbers

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> Messages:
        return Messages(self.data, self.starts[:count], self.ends[:count])


@contextmanager
def connected(url: Secret) -> Iterator[Connection]:
    """A connection of its own for a read of the log."""
    try:
        connection = psycopg.connect(
            url.reveal(), autocommit=True, prepare_threshold=None, application_name="headwater", client_encoding="UTF8"
        )
    except psycopg.Error as error:
        text = masked(" ".join(str(error).split()))
        raise SourceUnreachable(
            f"{masked(url.reveal())}: {text}", hint="check that the server runs and that url is right"
        ) from None
    with closing(connection):
        yield connection


def peeked(connection: Connection, peek: Peek) -> Generator[Messages, None, None]:
    """The connection is idle again when all have been taken; before that it is good for nothing else."""
    with _translated(peek):
        connection.execute(f"{set_session()}, set_config('statement_timeout', '0', false)")
        connection.execute("SET client_encoding TO 'UTF8'")
        _check_publication(connection, peek)
        query = peek_sql(peek, connection.info.server_version)
        for chunk in _copied(connection, query) if can_copy(connection) else _through_libpq(connection, query):
            yield from _pieces(chunk)


def _check_publication(connection: Connection, peek: Peek) -> None:
    """PostgreSQL 18 only warns of a publication that is not there, and shows an empty log."""
    asked = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s"
    if not connection.execute(asked, [peek.publication]).fetchone():
        raise SourceChanged(
            f"slot {peek.slot}: publication {peek.publication} does not exist",
            hint=f"changes since it was dropped cannot be read; {_COPY_ANEW}",
        )


def peek_sql(peek: Peek, server_version: int) -> str:
    """One column: each message says by itself where it belongs."""
    published = '"' + peek.publication.replace('"', '""') + '"'  # a list of names as SQL writes them, in a text
    options = ["proto_version", "1", "publication_names", published]
    if server_version >= _FIRST_WITH_MESSAGES:
        options += ["messages", "true"]
    upto = "NULL" if peek.upto is None else f"'{lsn_text(peek.upto)}'"
    changes = "NULL" if peek.changes is None else str(min(peek.changes, _MOST_CHANGES))
    texts = ", ".join(sql.Literal(option).as_string() for option in options)
    slot = sql.Literal(peek.slot).as_string()
    return f"SELECT data FROM pg_logical_slot_peek_binary_changes({slot}, {upto}, {changes}, {texts})"  # noqa: S608


def _copied(connection: Connection, query: str) -> Iterator[Messages]:
    for chunk in copy_rows(connection, query, 1):
        yield Messages(np.frombuffer(chunk.data, np.uint8), chunk.starts + _HEAD, chunk.ends)


def _through_libpq(connection: Connection, query: str) -> Iterator[Messages]:
    """Of encrypted connections, which only libpq can read: a row at a time."""
    with connection.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()) as copy:
        rows: list[bytes] = []
        size, skipped = 0, _SIGNATURE
        for block in copy:
            row = bytes(block)[skipped:]
            skipped = 0
            if row.startswith(_ROW):
                rows.append(row)
                size += len(row)
            if size >= _PIECE:
                yield _joined(rows)
                rows, size = [], 0
        if rows:
            yield _joined(rows)


def _joined(rows: list[bytes]) -> Messages:
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([[0], ends[:-1]]) + len(_ROW) + _HEAD
    return Messages(np.frombuffer(b"".join([*rows, bytes(PADDING)]), np.uint8), starts, ends)


def _pieces(chunk: Messages) -> Iterator[Messages]:
    """A chunk grows with its largest message; offsets of Arrow have 32 bits, and memory is to stay flat."""
    begin = 0
    while begin < len(chunk):
        base = int(chunk.starts[begin])
        until = max(int(np.searchsorted(chunk.ends, base + _PIECE, side="right")), begin + 1)
        data = chunk.data[base : int(chunk.ends[until - 1]) + PADDING]
        yield Messages(data, chunk.starts[begin:until] - base, chunk.ends[begin:until] - base)
        begin = until


@contextmanager
def _translated(peek: Peek) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, CopyRefused, OSError) as error:
        raise _ours(peek, error) from None


def _ours(peek: Peek, error: Exception) -> HeadwaterError:
    text = masked(" ".join(str(error).split()))
    found = _STATE.search(text)
    state = error.sqlstate if isinstance(error, psycopg.Error) else found[1] if found else ""
    said = f"slot {peek.slot}: {text}"
    match state:
        case "55000":
            return SourceChanged(
                said,
                hint=f"when the slot is lost (wal_status in pg_replication_slots), what it kept is gone; {_COPY_ANEW}",
            )
        case "42704":
            return SourceChanged(said, hint=f"what a slot kept goes with it; {_COPY_ANEW}")
        case "55006":
            return SourceUnreachable(
                said, hint="another process reads this slot; each pipeline needs a slot of its own"
            )
        case "42501":
            return SourceUnreachable(said, hint="the role needs REPLICATION; headwater check says how to give it")
        case str() if state.startswith(("22", "XX", "54")):
            return RunError(said, hint="the server could not decode its log; its own log may say more")
    return SourceUnreachable(
        said, hint="the window is read again by the next cycle; check the server if it happens again"
    )
