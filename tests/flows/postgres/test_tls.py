"""PostgreSQL over TLS, with a certificate that is checked: polled tables, initial copies and slots land."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

from headwater.model.errors import SourceUnreachable
from headwater.testing.servers import running_tls_postgres, why_no_tls
from tests.sources.postgres.initial_copy.copy_rows import rows_of
from tests.sources.sql.poller import Poller
from tests.support.world import World

pytestmark = pytest.mark.skipif(bool(why_no_tls()), reason=why_no_tls())
ROWS = 20_001

WIDE = """
CREATE TABLE orders (id bigint PRIMARY KEY, small int2, middle int4, flag bool, half float4, whole float8,
    price numeric(12,2), vast numeric(38,10), day date, local timestamp, instant timestamptz, words text, tree jsonb,
    bytes bytea, span interval);
INSERT INTO orders SELECT n, n % 100, n, n % 2 = 0, n / 8.0, n / 3.0, n * 0.25, n * 1e20 + 0.5, date '2026-01-01' + n % 300,
    timestamp '2026-01-01' + n * interval '1 s', timestamptz '2026-01-01+00' + n * interval '1 s', 'order ' || n,
    jsonb_build_object('n', n), int4send(n), n * interval '1 s' FROM generate_series(1, 20000) n;
INSERT INTO orders (id) VALUES (0)"""


@pytest.fixture(scope="module")
def server():
    with running_tls_postgres() as running:
        with psycopg.connect(running.url(), autocommit=True) as connection:
            connection.execute(WIDE)
        yield running


def test_every_type_is_read_as_over_a_plain_connection(server):
    plain, encrypted = (Poller(url, table="orders", cursor="id") for url in (server.plain_url(), server.url()))
    ours, theirs = encrypted.table().sort_by("id"), plain.table().sort_by("id")
    assert ours.num_rows == ROWS
    assert ours.equals(theirs)
    copied = [
        sorted(
            ({**row, "_position": 0, "_source_time": 0} for row in rows_of(url, "orders")), key=lambda row: row["id"]
        )
        for url in (server.plain_url(), server.url())
    ]
    assert copied[0] == copied[1]
    for poller in (plain, encrypted):
        poller.close()


def test_a_server_whose_certificate_nobody_vouches_for_is_not_read(server):
    poller = Poller(server.url().replace("authority.pem", "server.csr"), table="orders", cursor="id")
    with pytest.raises(SourceUnreachable, match="certificate"):
        poller.look()
    poller.close()


@pytest.mark.spark
def test_a_polled_table_an_initial_copy_and_a_slot_land(server, spark, namespace, tmp_path):
    polled = World(
        tmp_path,
        {"sql": {"url": server.url(), "table": "public.orders", "cursor": "id"}},
        [{"iceberg": {"table": f"{namespace}.polled", "mode": "merge", "key": ["id"]}}],
        name="polled",
        spark=spark,
    )
    captured = World(
        tmp_path,
        {"postgres": {"url": server.url(), "tables": ["public.orders"], "slot": "captured"}},
        [{"iceberg": {"table": f"{namespace}.captured", "mode": "merge"}}],
        name="captured",
        spark=spark,
    )

    def landed(world: World) -> tuple[int, Decimal]:
        world.catch_up()
        (total,) = world.select(f"SELECT count(*), sum(price) FROM {namespace}.{world.name}")
        return total

    before = (ROWS, Decimal("50002500.00"))
    assert (landed(polled), landed(captured)) == (before, before)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            "UPDATE orders SET price = price + 1 WHERE id BETWEEN 1 AND 10; DELETE FROM orders WHERE id = 0"
        )
        connection.execute("INSERT INTO orders (id, price) VALUES (20001, 5)")
    assert landed(captured) == (ROWS, before[1] + 15)
    assert landed(polled)[0] == ROWS + 1  # which never hears of a delete
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SELECT pg_drop_replication_slot('captured')")
