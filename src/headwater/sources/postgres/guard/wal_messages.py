"""Our own messages in the WAL: labels, cuts and heartbeats.

They are transactional: each is a transaction of its own, with a commit after which a window can end. Other messages come
between the commits of others, and even from a transaction that is rolled back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headwater.model.errors import InputError
from headwater.model.position.lsn import lsn_number, lsn_text
from headwater.model.protocols.source import check_label, label_problem
from headwater.pg.connection import PostgresSession

PREFIX = "headwater"

_MAX_BYTES = 4096
# A label that was promised must survive a crash of the server, whatever the role's default is.
_EMIT = """
SELECT set_config('synchronous_commit', 'on', true),
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_logical_emit_message(true, %s, %s::bytea)::text END"""


@dataclass(frozen=True)
class Label:
    """A named moment: the tables get a tag."""

    text: str


@dataclass(frozen=True)
class Cut:
    """A verification asks for a window that ends right before this LSN."""

    lsn: int


@dataclass(frozen=True)
class Heartbeat:
    """An empty commit, so that the slot can advance."""


Note = Label | Cut | Heartbeat


def label_note(text: str) -> bytes:
    """Raises InputError for what cannot be a label."""
    check_label(text)
    return _json({"label": text})


def cut_note(lsn: int) -> bytes:
    return _json({"cut": lsn_text(lsn)})


def heartbeat_note() -> bytes:
    return _json({"heartbeat": 1})


def parse_note(prefix: str, content: bytes) -> Note | None:
    """The note of a WAL message; None: it is not ours, or malformed. Every role may write messages."""
    if prefix != PREFIX or len(content) > _MAX_BYTES:
        return None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"label": str(text), **rest} if not rest and not label_problem(text):
            return Label(text)
        case {"cut": str(lsn), **rest} if not rest:
            return _cut(lsn)
        case {"heartbeat": 1, **rest} if not rest:
            return Heartbeat()
        case _:
            return None


def emit(session: PostgresSession, note: bytes) -> int:
    """Write a note into the WAL, durably. Returns its LSN; its transaction ends a little after that."""
    ((_, lsn),) = session.fetch(_EMIT, [PREFIX, note])
    if lsn is None:
        raise InputError(
            f"{session.address}: this server is a standby, which cannot write WAL messages",
            hint="write it on the primary; it reaches the standby with the WAL",
        )
    return lsn_number(lsn)


def _json(data: dict[str, object]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _cut(lsn: str) -> Cut | None:
    try:
        return Cut(lsn_number(lsn))
    except ValueError:
        return None
