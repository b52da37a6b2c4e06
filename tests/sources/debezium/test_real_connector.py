"""A real Debezium on a real table of many types, in each of its modes: every value is PostgreSQL's own."""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headwater.model.errors import SourceUnreachable
from tests.sources.kafka.poller import Poller
from tests.support.replication_slots import drop_slot
from tests.support.stack import KafkaForTests
from tests.support.wait import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.timeout(180)]

# Column, type, a value; then what PostgreSQL is asked for to compare with it, by default the column itself.
COLUMNS = [
    ("flag", "boolean", "true", ""),
    ("s", "smallint", "-32768", ""),
    ("b", "bigint", "9223372036854775807", ""),
    ("r", "real", "3.4028235e38", "r::float8"),
    ("nan", "real", "'NaN'", "nan::text"),
    ("d", "double precision", "5e-324", ""),
    ("inf", "double precision", "'-Infinity'", ""),
    ("n", "numeric(12,3)", "-123456789.125", ""),
    ("free", "numeric", "0.00000000000000000000000000000001", "free::text"),
    ("m", "money", "-12.34", "m::numeric"),
    ("c", "char(5)", "'ab'", ""),
    ("t", "text", "'Zürich \"x\" \\ 💧'", ""),
    ("ci", "citext", "'MiXed'", "ci::text"),
    ("raw", "bytea", r"'\x00ff10'", ""),
    ("bit1", "bit(1)", "B'1'", "bit1 = B'1'"),
    ("bits", "bit(12)", "B'000100000101'", r"'\x0501'::bytea"),
    ("day", "date", "'2026-03-02'", ""),
    ("tm", "time", "'08:30:00.123456'", "tm::text"),
    ("tm3", "time(3)", "'08:30:00.125'", "tm3::text"),
    ("tz", "timetz", "'08:30:00.123456+02'", "'06:30:00.123456Z'"),
    ("ts", "timestamp", "'2026-03-02 08:30:00.123456'", ""),
    ("ts3", "timestamp(3)", "'0001-01-01 00:00:00.125'", ""),
    ("at", "timestamptz", "'2026-03-02 08:30:00.123456+02'", ""),
    ("iv", "interval", "'1 day 02:03:04.5'", "(extract(epoch FROM iv) * 1000000)::bigint"),
    ("js", "json", """'{"a" : 1.50}'""", "js::text"),
    ("jb", "jsonb", """'{"b":[1,2]}'""", "jb::text"),
    ("u", "uuid", "'0f8fad5b-d9cb-469f-a165-70867728950e'", "u::text"),
    ("e", "mood", "'sad'", "e::text"),
    ("ip", "inet", "'10.0.0.1'", "host(ip)"),
    ("net", "cidr", "'10.0.0.0/8'", "net::text"),
    ("mac", "macaddr", "'08:00:2b:01:02:03'", "mac::text"),
    ("rng", "int4range", "'[1,5)'", "rng::text"),
    ("trng", "daterange", "'[2026-03-02,2026-03-04)'", "trng::text"),
    ("lt", "ltree", "'a.b'", "lt::text"),
    ("hs", "hstore", "'k=>v, w=>NULL'", "ARRAY['k','v','w',NULL]"),
    ("vec", "vector(3)", "'[1,2.5,-3]'", "vec::real[]::float8[]"),
    ("p", "point", "'(1.5,-2)'", "ARRAY[p[0], p[1]]"),
    ("ta", "text[]", "ARRAY['a',NULL,'']", ""),
    ("ia", "integer[]", "ARRAY[1,NULL,3]", ""),
    ("ba", "bigint[]", "ARRAY[9223372036854775807]", ""),
    ("fa", "double precision[]", "ARRAY[1.5]", ""),
    ("na", "numeric(5,1)[]", "ARRAY[1.5]", ""),
    ("da", "date[]", "ARRAY['2026-03-02'::date]", ""),
    ("ua", "uuid[]", "ARRAY['0f8fad5b-d9cb-469f-a165-70867728950e'::uuid]", "ua::text[]"),
]
# Values that are too large for their row, and are not sent again by an update that leaves them alone.
LARGE = {
    "big": ("text", "repeat('x', 9000)"),
    "bigraw": ("bytea", r"decode(repeat('ab', 9000), 'hex')"),
    "bigjson": ("jsonb", """jsonb_build_object('k', repeat('x', 9000))"""),
    "bigtexts": ("text[]", "ARRAY[repeat('x', 9000)]"),
    "bigints": ("integer[]", "ARRAY(SELECT generate_series(1, 9000))"),
    "biglongs": ("bigint[]", "ARRAY(SELECT generate_series(1, 9000)::bigint)"),
}
DDL = """
CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION hstore; CREATE EXTENSION vector;
CREATE TYPE mood AS ENUM ('ok', 'sad');
"""

MODES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "defaults": ({}, {}),
    "string, connect, hex": (
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "binary.handling.mode": "hex",
            "interval.handling.mode": "string",
            "hstore.handling.mode": "map",
        },
        {
            "n": "n::text",
            "m": "m::numeric::text",
            "na": "na::text[]",
            "raw": "encode(raw, 'hex')",
            "tm": "to_char(tm, 'HH24:MI:SS.MS')",
            "ts": "date_trunc('milliseconds', ts)",
            "iv": "'P0Y0M1DT2H3M4.5S'",
        },
    ),
    "double, isostring, base64": (
        {"decimal.handling.mode": "double", "time.precision.mode": "isostring", "binary.handling.mode": "base64"},
        {
            "n": "n::float8",
            "m": "m::numeric::float8",
            "na": "na::float8[]",
            "free": "free::float8",
            "raw": "encode(raw, 'base64')",
        },
    ),
    "nanoseconds": (
        {"time.precision.mode": "nanoseconds", "binary.handling.mode": "base64-url-safe"},
        # Debezium itself sends NULL for years that nanoseconds cannot reach.
        {"raw": "'AP8Q'", "tm": "tm::text || '000'", "tm3": "tm3::text || '000000'", "ts3": "NULL::timestamp"},
    ),
    "microseconds": ({"time.precision.mode": "microseconds"}, {"tm3": "tm3::text || '000'"}),
    "adaptive_time_microseconds": ({"time.precision.mode": "adaptive_time_microseconds"}, {"tm3": "tm3::text || '000'"}),
}  # fmt: skip


def ask(url: str, method: str = "GET", body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
        return json.loads(answer.read() or "null")


@contextmanager
def connector(connect: str, database: str, **settings: str) -> Iterator[str]:
    """A connector of the test's own on `public.things`; gives its topic."""
    name = f"real_{uuid.uuid4().hex[:8]}"
    at = psycopg.conninfo.conninfo_to_dict(database)
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": at["host"],
        "database.port": at["port"],
        "database.user": at["user"],
        "database.dbname": at["dbname"],
        "topic.prefix": name,
        "slot.name": name,
        "publication.name": name,
        "table.include.list": "public.things",
        "skipped.operations": "none",
        **settings,
    }
    ask(f"{connect}/connectors", "POST", {"name": name, "config": config})
    try:
        yield f"{name}.public.things"
    finally:
        ask(f"{connect}/connectors/{name}", "DELETE")
        drop_slot(database, name)


class Changes:
    """The topic's rows, as they come."""

    def __init__(self, kafka: KafkaForTests, topic: str, **settings: object) -> None:
        self.poller = Poller(kafka.brokers, topic, format="debezium", metadata=["offset"], **settings)
        self.rows: list[dict] = []

    def wait(self, count: int) -> list[dict]:
        """Until there are so many, with rejects; gives all of them."""

        def there() -> bool:
            try:
                self.rows += self.poller.poll()
            except SourceUnreachable:
                return False  # the topic is made by the first event
            return len(self.rows) + len(self.poller.rejects) >= count

        wait_until(there, 90)
        assert len(self.rows) + len(self.poller.rejects) == count
        return self.rows


def created(database: str) -> None:
    columns = [f"{name} {kind}" for name, kind, *_ in COLUMNS] + [f"{name} {kind}" for name, (kind, _) in LARGE.items()]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(DDL)
        connection.execute(f"CREATE TABLE things (id int PRIMARY KEY, {', '.join(columns)})")
        for name in LARGE:
            connection.execute(f"ALTER TABLE things ALTER {name} SET STORAGE EXTERNAL")
        insert(connection, 1)


def insert(connection: psycopg.Connection, number: int) -> None:
    values = [value for _, _, value, _ in COLUMNS] + [value for _, value in LARGE.values()]
    connection.execute(f"INSERT INTO things VALUES ({number}, {', '.join(values)})")


def expected(database: str, other: dict[str, str]) -> dict[str, Any]:
    """Row 1, as PostgreSQL sees it."""
    expressions = {name: other.get(name) or compared or name for name, _, _, compared in COLUMNS}
    with psycopg.connect(database) as connection:
        connection.execute("SET lc_monetary = 'C'")
        sql = f"SELECT {', '.join(f'{text} AS {name}' for name, text in expressions.items())} FROM things WHERE id = 1"
        row = connection.execute(sql).fetchone()  # type: ignore[arg-type]
    return dict(zip(expressions, row or (), strict=True))


def plain(name: str, value: Any) -> Any:
    """What is kept, in the form in which PostgreSQL is asked."""
    if name == "nan":
        return str(value).replace("nan", "NaN")
    if name == "hs":
        pairs = value if isinstance(value, list) else json.loads(value).items()
        return [text for pair in sorted(pairs) for text in pair]
    return [value["x"], value["y"]] if name == "p" else value


@pytest.mark.parametrize("mode", MODES)
def test_every_value_is_postgresqls_own(mode: str, connect: str, kafka: KafkaForTests, database: str):
    settings, other = MODES[mode]
    created(database)
    with connector(connect, database, **settings) as topic:
        changes = Changes(kafka, topic)
        changes.wait(1)
        with psycopg.connect(database, autocommit=True) as connection:
            insert(connection, 2)
            connection.execute("INSERT INTO things (id) VALUES (3)")
        events = changes.wait(3)
    assert changes.poller.rejects == []
    wanted = expected(database, other)
    for row in events[:2]:
        actual = {name: plain(name, row[name]) for name in wanted}
        assert actual == wanted
    assert [row["_op"] for row in events] == ["r", "c", "c"]
    assert {name for name, value in events[2].items() if value is not None and name[0] != "_"} == {"id", "kafka_offset"}


def test_what_happens_to_rows(connect: str, kafka: KafkaForTests, database: str):
    created(database)
    with connector(connect, database) as topic:
        changes = Changes(kafka, topic)
        changes.wait(1)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE things SET s = 7 WHERE id = 1")
            connection.execute("UPDATE things SET id = 10 WHERE id = 1")
            connection.execute("INSERT INTO things (id, ts) VALUES (4, 'infinity'), (5, '2026-03-02')")
            connection.execute("INSERT INTO things (id, at) VALUES (6, '-infinity')")
            connection.execute("DELETE FROM things WHERE id = 5")
            connection.execute("ALTER TABLE things ADD extra int DEFAULT 3")
            connection.execute("INSERT INTO things (id) VALUES (8)")
            connection.execute("TRUNCATE things")
            connection.execute("INSERT INTO things (id) VALUES (9)")
        events = changes.wait(11)
    read, updated, deleted, moved, kept, gone, added, emptied, last = events
    assert (read["_op"], updated["_op"], updated["s"]) == ("r", "u", 7)
    assert sorted(updated["_missing"]) == sorted(LARGE)
    assert {updated[name] for name in LARGE} == {None}
    assert read["_missing"] is None
    assert len(read["big"]) == len(read["bigraw"]) == len(read["bigints"]) == 9000
    assert (deleted["_op"], deleted["id"], moved["_op"], moved["id"], moved["_old_key"]) == ("d", 1, "c", 10, "[1]")
    assert sorted(moved["_missing"]) == sorted(LARGE)
    assert (kept["id"], kept["ts"]) == (5, dt.datetime(2026, 3, 2))  # noqa: DTZ001 - that is the point
    assert (gone["_op"], gone["id"], gone["s"], gone["ts"]) == ("d", 5, None, None)
    assert (added["id"], added["extra"]) == (8, 3)
    assert (emptied["_op"], emptied["id"]) == ("t", None)
    assert (last["id"], last["_op"]) == (9, "c")
    places = [row["_position"] for row in events]
    assert places == sorted(places)
    assert len(set(places)) == len(places) - 1  # the two halves of the changed key stand at one place
    assert [reject.reason.partition(":")[0] for reject in changes.poller.rejects] == ["ts", "at"]
    assert read["_source_time"] <= updated["_source_time"]
    assert updated["_transaction"] != moved["_transaction"]


def test_without_schemas_the_declared_types_are_kept_as_well(connect: str, kafka: KafkaForTests, database: str):
    created(database)
    bare = {f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")}
    bare |= {f"{side}.converter.schemas.enable": "false" for side in ("key", "value")}
    ddl = (
        "id int, flag boolean, s smallint, b bigint, r float, inf double, n decimal(12,3), t string, raw binary, "
        "day date, ts timestamp_ntz, at timestamp, ta array<string>, ia array<int>, big string, bigraw binary, "
        "bigints array<int>"
    )
    with connector(connect, database, **bare) as topic:
        changes = Changes(kafka, topic, schema=ddl)
        changes.wait(1)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("UPDATE things SET s = 7 WHERE id = 1")
            connection.execute("DELETE FROM things WHERE id = 1")
            insert(connection, 1)
        read, updated, deleted, again = changes.wait(4)
    assert changes.poller.rejects == []
    wanted = expected(database, {})
    names = [name for name in read if name in wanted]
    assert len(names) == 13
    for row in (read, again):
        assert {name: row[name] for name in names} == {name: wanted[name] for name in names}
    assert (updated["s"], sorted(updated["_missing"])) == (7, ["big", "bigints", "bigraw"])
    assert (deleted["id"], deleted["s"]) == (1, None)
    assert changes.poller.mark.streams[topic].key == ("id",)  # type: ignore[union-attr]
