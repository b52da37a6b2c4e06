"""Changes from a replication slot into typed Arrow files, against what the server alone needs to decode its log.

1,000,000 changes of a table of 7 columns, 100 a transaction: 40 % inserts, 45 % updates, 15 % deletes.
Run: python bench/wal_decoder.py [CHANGES]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pyarrow as pa

from headwater.pg.types import column_type
from headwater.services.stack.postgres import running_postgres
from headwater.sources.postgres.wal.reader import TableRequest, WalRead, read_wal
from headwater.sources.postgres.wal.segment import cut
from headwater.sources.postgres.wal.transactions import Peek, read_slot

TABLE = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12,2), updated_at timestamptz, flag boolean,
    note text, payload jsonb);
CREATE PUBLICATION bench FOR TABLE orders;
CREATE PROCEDURE work(transactions int) LANGUAGE plpgsql AS $$
DECLARE top bigint := 1000; low bigint := 1;
BEGIN
    FOR turn IN 1..transactions LOOP
        INSERT INTO orders SELECT n, 'customer ' || n % 1000, n % 100000 * 0.25, now() + n * interval '1 ms', n % 2 = 0,
            'note of order ' || n, jsonb_build_object('order', n, 'state', 'new') FROM generate_series(top + 1, top + 40) n;
        top := top + 40;
        UPDATE orders SET amount = amount + 1, updated_at = clock_timestamp() WHERE id > top - 45;
        DELETE FROM orders WHERE id >= low AND id < low + 15;
        low := low + 15;
        COMMIT;
    END LOOP;
END $$;
INSERT INTO orders SELECT n, 'customer', 1, now(), true, 'note', '{}' FROM generate_series(1, 1000) n;
"""
FROM_SLOT = (
    "FROM pg_logical_slot_peek_binary_changes('bench', NULL, NULL, 'proto_version', '1', 'publication_names', 'bench')"
)
ROUNDS = 5


def main(changes: int) -> None:
    with running_postgres({"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as work:
        url = server.url()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute("SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
            connection.execute(f"CALL work({changes // 100})")
            (oid,) = connection.execute("SELECT 'orders'::regclass::oid::bigint").fetchone()
        print(f"{changes:,} changes × 7 columns, 100 a transaction, median of {ROUNDS}")
        times: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, measured in (
                ("server alone", lambda: alone(url)),
                ("messages", lambda: received(url)),
                ("typed and spooled", lambda: spooled(url, oid, Path(work), changes)),
            ):
                wall, cpu = measured()
                times.setdefault(name, []).append(wall)
                times.setdefault(f"{name}, our CPU", []).append(cpu)
        usual = {name: statistics.median(seconds) for name, seconds in times.items()}
        for name in ("server alone", "messages", "typed and spooled"):
            cpu = usual[f"{name}, our CPU"]
            print(f"  {name:<18} {usual[name]:5.2f} s   {changes / usual[name]:>9,.0f} changes/s   our CPU {cpu:.2f} s")
        decoding = usual["typed and spooled, our CPU"] - usual["messages, our CPU"]
        print(
            f"  decoding, typing, spooling alone: {changes / decoding:,.0f} changes per second and core (at least 1,000,000)"
        )
        print(
            f"typed and spooled / server alone  {usual['typed and spooled'] / usual['server alone']:.2f} ×   (at most 2)"
        )


def timed(work) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def alone(url: str) -> tuple[float, float]:
    with psycopg.connect(url) as connection:
        return timed(lambda: connection.execute(f"SELECT count(*) {FROM_SLOT}").fetchone())


def received(url: str) -> tuple[float, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        return timed(lambda: sum(len(messages) for messages in read_slot(connection, Peek("bench", "bench"))))


def spooled(url: str, oid: int, folder: Path, changes: int) -> tuple[float, float]:
    reads: list[WalRead] = []

    def kinds(layout) -> list[str]:
        return [column_type(column.type, column.modifier) or "string" for column in layout.columns]

    with psycopg.connect(url, autocommit=True) as connection:
        orders = {oid: TableRequest("orders", 0, 0, ("id",))}
        peek = Peek("bench", "bench")
        times = timed(
            lambda: reads.append(read_wal(connection, peek, orders, kinds, folder, after=0, stop=lambda _: False))
        )
    (segment,) = reads[0].segments
    assert segment.rows == changes
    (split,) = cut(segment, 1, [(column.name, column.name) for column in segment.layout.columns], segment.schema)
    ops = pa.Table.from_batches(split.read())["_op"].value_counts().to_pylist()
    assert {one["values"]: one["counts"] for one in ops} == {
        "c": changes * 40 // 100, "u": changes * 45 // 100, "d": changes * 15 // 100,
    }  # fmt: skip
    return times


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
