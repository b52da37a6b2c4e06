"""Messages of PostgreSQL's plugin `pgoutput`, protocol version 1: numbers of many at once, and the rare ones whole.

| letter | what it is |
| --- | --- |
| B, C | begin and commit of a transaction; all of it stands between them |
| R | a table's layout, before its first row and when it changes |
| I, U, D, T | rows inserted, updated, deleted; tables truncated |
| M | words that somebody put into the log |
| Y, O | a type's name, and where a transaction came from first: nothing is made of them |
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from headwater.model.errors import RunError
from headwater.sources.postgres.log.layout import Layout, LoggedColumn
from headwater.sources.sql.copy_binary import Numbers

BEGIN, COMMIT, RELATION, INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = b"BCRIUDTM"
_KNOWN = b"BCRIUDTMYO"
OURS = b"headwater"
"""The prefix of messages that are meant for us; others' may be many, and large."""

EPOCH = 946_684_800_000_000
"""2000, from where PostgreSQL counts microseconds, seen from 1970."""

BEGINS = [("letter", "u1"), ("lsn", ">i8"), ("time", ">i8"), ("transaction", ">u4")]
COMMITS = [("letter", "u1"), ("flags", "u1"), ("lsn", ">i8"), ("end", ">i8"), ("time", ">i8")]
_TRANSACTIONAL = 1
_Form = str | list[tuple[str, str]]


class Note(NamedTuple):
    prefix: str
    content: bytes


def read(data: Numbers, at: Numbers, form: _Form) -> Numbers:
    """What has that form, at each of these places; any byte may be one. `data` reaches behind the last."""
    layout: np.dtype[Any] = np.dtype(form)
    every = np.ndarray((len(data) - layout.itemsize + 1,), f"V{layout.itemsize}", data.data, strides=(1,))
    return every[at].view(layout)


def letters(data: Numbers, starts: Numbers) -> Numbers:
    """The kind of each message. Raises RunError at one that is unknown."""
    found = data[starts]
    unknown = np.bincount(found, minlength=256)
    unknown[list(_KNOWN)] = 0
    if unknown.any():
        raise RunError(f"the server's log holds messages of the unknown kind {chr(int(unknown.argmax()))!r}")
    return found


def ours(data: Numbers, at: Numbers) -> Numbers:
    """Which messages M are transactional and have our prefix. One outside of a transaction has no place in the order."""
    words = np.frombuffer(OURS + b"\0", np.uint8)
    found = read(data, at, [("letter", "u1"), ("flags", "u1"), ("lsn", ">i8"), ("prefix", f"{len(words)}u1")])
    return np.asarray((found["flags"] == _TRANSACTIONAL) & (found["prefix"] == words).all(axis=1))


def note(message: bytes) -> Note:
    prefix, _, rest = message[10:].partition(b"\0")
    (size,) = struct.unpack_from(">I", rest)
    return Note(prefix.decode(), rest[4 : 4 + size])


def truncated(message: bytes) -> tuple[int, ...]:
    """The tables' oids; the flags (CASCADE, RESTART IDENTITY) say nothing that rows need: cascaded tables are listed."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


def layout(message: bytes) -> Layout:
    (oid,) = struct.unpack_from(">I", message, 1)
    schema, name, rest = message[5:].split(b"\0", 2)
    identity, (count,) = chr(rest[0]), struct.unpack_from(">H", rest, 1)
    columns, at = [], 3
    for _ in range(count):
        end = rest.index(b"\0", at + 1)
        kind, modifier = struct.unpack_from(">Ii", rest, end + 1)
        columns.append(LoggedColumn(rest[at + 1 : end].decode(), kind, modifier, bool(rest[at] & 1)))
        at = end + 9
    made: Any = identity  # the four letters that pgoutput writes
    return Layout(oid, schema.decode() or "pg_catalog", name.decode(), made, tuple(columns))
