"""What the server refuses, as errors of ours: by operation and SQLSTATE."""

from __future__ import annotations

import psycopg
import pytest

from headwater.model.errors import InputError, RunError, SourceChanged, SourceUnreachable, UnknownName
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession, is_transient, translate
from headwater.pg.copy.stream import CopyRefused


@pytest.mark.parametrize(
    ("operation", "error", "expected"),
    [
        ("query", psycopg.errors.UndefinedTable("no t"), UnknownName),
        ("query", psycopg.errors.SyntaxError("at ("), InputError),
        ("query", psycopg.errors.DivisionByZero("1/0"), RunError),
        ("query", psycopg.errors.AdminShutdown("bye"), SourceUnreachable),
        ("command", psycopg.errors.DuplicateObject("role"), InputError),
        ("command", psycopg.OperationalError("cut"), SourceUnreachable),
        ("read slot", CopyRefused("lost", "55000"), SourceChanged),
        ("read slot", OSError("reset"), SourceUnreachable),
        ("create slot", psycopg.errors.DuplicateObject("slot"), InputError),
        ("create slot", psycopg.errors.UndefinedFunction("f"), InputError),
        ("copy", CopyRefused("cut"), SourceUnreachable),
    ],
)
def test_an_error_is_translated_by_operation_and_state(operation, error, expected):
    translated = translate(error, "db", operation, slot="s", seconds=1)
    assert type(translated) is expected
    assert translated.message.startswith("db: ")


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (psycopg.errors.AdminShutdown("bye"), True),
        (psycopg.OperationalError("cut"), True),
        (CopyRefused("cut"), True),
        (OSError("reset"), True),
        (psycopg.InterfaceError("closed"), False),
        (psycopg.errors.UndefinedTable("no t"), False),
        (CopyRefused("no", "42501"), False),
    ],
)
def test_only_a_failed_connection_is_worth_another_try(error, transient):
    assert is_transient(error) is transient


def test_an_unreachable_server_is_reported_without_a_secret():
    with pytest.raises(SourceUnreachable) as caught:
        PostgresSession(Secret("postgresql://me:hidden@127.0.0.1:1/x")).ping()
    assert "hidden" not in str(caught.value)
