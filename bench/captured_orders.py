"""A PostgreSQL table of orders, and a stream of changes to it: what benchmarks of change capture work on."""

from __future__ import annotations

import psycopg

TABLE = """
CREATE TABLE {name} (
    id bigint PRIMARY KEY, customer text NOT NULL, amount numeric(12, 2) NOT NULL, updated_at timestamptz NOT NULL,
    paid boolean NOT NULL, note text, payload jsonb NOT NULL)"""
ROWS = """
INSERT INTO {name} SELECT n, 'customer ' || n % 1000, (n % 100000) * 0.25, timestamptz '2026-03-02 09:00:00+00' + n * interval '1 ms',
    n % 3 = 0, 'a note about order ' || n, jsonb_build_object('n', n, 'tags', jsonb_build_array('a', 'b'))
FROM generate_series({first}, {last}) AS n"""
# 40 inserts, 45 updates and 15 deletes in each transaction; keys spread over the whole table.
CHANGES = """
CREATE OR REPLACE PROCEDURE {name}_changes(transactions int, before bigint, first bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR t IN 0 .. transactions - 1 LOOP
        INSERT INTO {name} SELECT first + t * 40 + n, 'new customer ' || n, n * 0.5, clock_timestamp(), true,
            'a new order', jsonb_build_object('t', t, 'n', n) FROM generate_series(0, 39) AS n;
        UPDATE {name} SET amount = amount + 1, updated_at = clock_timestamp(), note = 'changed in ' || t
        WHERE id = ANY(ARRAY(SELECT 1 + (t::bigint * 45 + n) * 7919 % before FROM generate_series(0, 44) AS n));
        DELETE FROM {name} WHERE id = ANY(ARRAY(SELECT 1 + (t::bigint * 15 + n) * 104729 % before FROM generate_series(0, 14) AS n));
        COMMIT;
    END LOOP;
END $$"""


def make_orders(url: str, name: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLE.format(name=name))
        connection.execute(ROWS.format(name=name, first=1, last=rows))
        connection.execute(CHANGES.format(name=name))
        connection.execute(f"VACUUM ANALYZE {name}")


def change_orders(url: str, name: str, rows: int, changes: int, first: int) -> None:
    """About so many changes, a hundred to a transaction; new rows are numbered from `first`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CALL {name}_changes({changes // 100}, {rows}, {first})")


def digest(url: str, name: str) -> tuple[int, int, str]:
    """Count, sum of keys and sum of amounts: equal in the table of the lake."""
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*), sum(id)::bigint, sum(amount)::text FROM {name}").fetchone()
    assert row is not None
    return row
