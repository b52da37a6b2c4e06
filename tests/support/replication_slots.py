"""Replication slots that a connector leaves behind."""

from __future__ import annotations

import psycopg

from tests.support.wait import wait_until


def drop_slot(database: str, name: str) -> None:
    """When its connector has let go of it."""
    with psycopg.connect(database, autocommit=True) as connection:
        free = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
        wait_until(lambda: connection.execute(free, [name]).fetchone() == (1,), 60)
        connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
