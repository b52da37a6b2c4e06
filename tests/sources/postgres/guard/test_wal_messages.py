"""Our messages in the log: what we write we read, and nothing else."""

from __future__ import annotations

import psycopg
import pytest

from headwater.model.errors import InputError
from headwater.model.position.lsn import lsn_number
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.guard.wal_messages import (
    PREFIX,
    Cut,
    Heartbeat,
    Label,
    cut_note,
    emit,
    heartbeat_note,
    label_note,
    parse_note,
)
from tests.support.replication_slots import drop_slot


def test_what_is_written_is_read():
    assert parse_note(PREFIX, label_note("month-end")) == Label("month-end")
    assert parse_note(PREFIX, cut_note(0x1_0000_00AB)) == Cut(0x1_0000_00AB)
    assert parse_note(PREFIX, heartbeat_note()) == Heartbeat()


def test_what_cannot_be_a_label_is_not_written():
    with pytest.raises(InputError):
        label_note("main")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"[]", b'"label"', b"\xff\xfe", b'{"label": 1}', b'{"label": "main"}', b'{"label": "a b"}',
        b'{"label": "a", "cut": "0/1"}', b'{"cut": "x"}', b'{"cut": 5}', b'{"heartbeat": 2}', b"{}", b"[" * 5000,
        b'{"label": "' + b"a" * 5000 + b'"}',
    ],
)  # fmt: skip
def test_damaged_messages_say_nothing(content):
    assert parse_note(PREFIX, content) is None


def test_messages_of_others_say_nothing():
    assert parse_note("debezium", label_note("a")) is None


def test_a_message_is_a_transaction_of_its_own_that_a_window_can_end_behind(database):
    session = PostgresSession(Secret(database))
    slot = f"notes_{database.rsplit('_', 1)[1]}"
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        admin.execute("CREATE PUBLICATION p")
        place = emit(session, label_note("a"))
        peek = """SELECT lsn::text, data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,
            'proto_version', '1', 'publication_names', 'p', 'messages', 'true')"""
        messages = admin.execute(peek, [slot]).fetchall()
    session.close()
    drop_slot(database, slot)
    assert [bytes(data[:1]) for _, data in messages] == [b"B", b"M", b"C"]
    commit_end = int.from_bytes(bytes(messages[2][1])[10:18])
    assert place < commit_end == lsn_number(messages[2][0])
