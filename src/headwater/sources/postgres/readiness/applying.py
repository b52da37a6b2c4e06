"""Runs a preparation: all or nothing, without holding up the application for long."""

from __future__ import annotations

from headwater.model.secret import Secret
from headwater.sources.postgres.readiness import sql_text
from headwater.sources.postgres.readiness.address import Connection
from headwater.sources.postgres.readiness.preparation import Preparation

_PATIENCE_SECONDS = 10.0


def apply(
    connection: Connection,
    preparation: Preparation,
    role_password: Secret | None,
    *,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> None:
    """Run the statements in one transaction, then those that must run alone."""
    with connection.transaction():
        # ALTER TABLE waits for open transactions, and whoever comes after it waits too.
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [f"{patience_seconds * 1000:.0f}ms"])
        for statement in preparation.statements:
            if statement.password_of is not None and role_password is not None:
                _set_password(connection, statement.password_of, role_password)
            elif not statement.alone:
                connection.execute(statement.text.encode())
    for statement in preparation.statements:
        if statement.alone:
            connection.execute(statement.text.encode())


def _set_password(connection: Connection, role: str, password: Secret) -> None:
    # Hashed here: the server's log may keep the statements that it was given (G11).
    hashed = connection.pgconn.encrypt_password(password.reveal().encode(), role.encode()).decode()
    connection.execute(f"ALTER ROLE {sql_text.name(role)} PASSWORD {sql_text.literal(hashed)}".encode())
