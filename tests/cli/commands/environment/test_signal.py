"""`headwater signal` against a real PostgreSQL; what Debezium does with signals is in tests/services."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from headwater.pg.address import Login, connected, only_address
from headwater.services.signals.signal_table import create, signal_table
from tests.support.command_line import Headwater

SECRET = "hunter2-s3cret"  # noqa: S105 - the one that must not show
SIGNALS = "SELECT id, type, data FROM public.debezium_signal ORDER BY id"


@pytest.fixture
def shop(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, state text)")
        connection.execute("CREATE TABLE log (line text)")
        connection.execute("CREATE VIEW recent AS SELECT * FROM orders")
        yield connection


@pytest.fixture
def other(postgres_url: str) -> Iterator[str]:
    """A second database, by its name."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        yield name
        admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def dotenv(folder: Path, url: str) -> None:
    at = conninfo_to_dict(url)
    (folder / ".env").write_text(
        f"POSTGRESQL_USER={at['user']}\nPOSTGRESQL_PASSWORD={SECRET}\n"
        f"POSTGRESQL_HOST={at['host']}\nPOSTGRESQL_PORT={at['port']}\n"
    )


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def test_a_dotenv_file_and_the_databases_named_make_the_table_in_each(
    headwater: Headwater, tmp_path, database, other, shop
):
    dotenv(tmp_path, database)
    flags = ("--database", name_of(database), "--database", other)
    first = headwater("signal", "init", *flags)
    assert first.code == 0, first.err
    assert first.out.splitlines() == [
        f"{name_of(database)}: public.debezium_signal created",
        f"{other}: public.debezium_signal created",
    ]
    again = headwater("signal", "init", *flags)
    assert again.out.splitlines() == [
        f"{name_of(database)}: public.debezium_signal exists",
        f"{other}: public.debezium_signal exists",
    ]
    assert [one["created"] for one in headwater("signal", "init", *flags, "--json").json["databases"]] == [False, False]
    columns = shop.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'debezium_signal' ORDER BY ordinal_position"
    ).fetchall()
    assert columns == [("id", "character varying"), ("type", "character varying"), ("data", "character varying")]
    for done in (first, again):
        assert SECRET not in done.out + done.err


def test_two_at_once_make_one_table(database, shop):
    address, table = only_address(Login(url=database)), signal_table("public.debezium_signal")

    def init(_: int) -> int:
        with connected(address) as connection:
            return len(create(connection, table, None, None))

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(init, range(6))) == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "columns",
    [
        "id varchar(42), type varchar(32)",
        "id varchar(42), type varchar(32), data varchar(2048), extra int",
        "type varchar(32), id varchar(42), data varchar(2048)",
        "id int, type varchar(32), data varchar(2048)",
        "id varchar(36), type varchar(32), data varchar(2048)",
    ],
)
def test_a_table_of_another_shape_is_refused_by_name_before_any_database_is_changed(
    headwater: Headwater, tmp_path, database, other, shop, columns
):
    shop.execute(f"CREATE TABLE public.debezium_signal ({columns})")
    dotenv(tmp_path, database)
    refused = headwater("signal", "init", "--database", other, "--database", name_of(database))
    assert refused.code == 2
    assert "public.debezium_signal exists and is not a signal table" in refused.err
    with psycopg.connect(database.rpartition("/")[0] + f"/{other}") as second:
        assert second.execute("SELECT to_regclass('public.debezium_signal')").fetchone() == (None,)


def test_the_table_that_debezium_documents_is_taken_as_it_is(headwater: Headwater, database, shop):
    shop.execute(
        "CREATE TABLE public.debezium_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"
    )
    assert "exists" in headwater("signal", "init", "--url", database).out
    many = [f"t{number:04}" for number in range(200)]
    for name in many:
        shop.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    long = headwater("signal", "snapshot", "t0*", "--url", database)
    assert long.code == 2
    assert "more than its column data holds" in long.err
    assert shop.execute(SIGNALS).fetchall() == []


def test_the_table_is_published_and_lent_to_the_connector_when_asked(headwater: Headwater, database, shop):
    role = f"connector_{uuid.uuid4().hex[:8]}"
    shop.execute("CREATE SCHEMA ops; CREATE PUBLICATION shop FOR TABLE orders")
    shop.execute(f"CREATE ROLE {role} LOGIN")
    flags = ("--url", database, "--table", "ops.signals", "--publication", "shop", "--role", role)
    try:
        done = headwater("signal", "init", *flags, "--json")
        assert done.code == 0, done.err
        assert [line.split("(")[0].strip() for line in done.json["databases"][0]["sql"]] == [
            'CREATE TABLE "ops"."signals"',
            'ALTER PUBLICATION "shop" ADD TABLE "ops"."signals";',
            f'GRANT USAGE ON SCHEMA "ops" TO "{role}";',
            f'GRANT SELECT, INSERT ON TABLE "ops"."signals" TO "{role}";',
        ]
        with psycopg.connect(database.replace("postgres@", f"{role}@"), autocommit=True) as connector:
            connector.execute("INSERT INTO ops.signals VALUES ('a', 'log', '{}')")
        assert headwater("signal", "init", *flags, "--json").json["databases"][0]["sql"] == []
        for wrong in (("--publication", "nosuch"), ("--role", "nosuch"), ("--table", "nosuch.signals")):
            assert headwater("signal", "init", "--url", database, *wrong).code == 2
        asked = headwater("signal", "snapshot", "orders", "--url", database, "--table", "ops.signals")
        assert (asked.code, asked.err) == (0, "")
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_snapshot_is_one_row_and_its_id_is_printed(headwater: Headwater, database, shop):
    headwater("signal", "init", "--url", database)
    asked = headwater(
        "signal", "snapshot", "public.orders", "--url", database, "--filter", "orders=state = 'DE'", "--json"
    )
    assert asked.code == 0, asked.err
    assert "no publication" in asked.json["notices"][0]
    assert "headwater signal init --publication" in asked.err
    ((signal_id, kind, data),) = shop.execute(SIGNALS).fetchall()
    assert (signal_id, kind) == (asked.json["id"], "execute-snapshot")
    assert json.loads(data) == {
        "type": "incremental",
        "data-collections": ["public.orders"],
        "additional-conditions": [{"data-collection": "public.orders", "filter": "state = 'DE'"}],
    }
    plain = headwater("signal", "snapshot", "orders", "--url", database)
    assert plain.out.endswith(": requested incremental snapshot of public.orders\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("public.log",), "without a primary key: public.log"),
        (("orders", "log"), "without a primary key: public.log"),
        (("public.nosuch",), "table public.nosuch does not exist"),
        (("recent",), "public.recent is a view"),
        (("orders", "--filter", "orders=nosuch = 1"), 'column "nosuch" does not exist'),
        (("orders", "--filter", "orders=true); DROP TABLE log; --"), "--filter public.orders"),
        (("orders", "--filter", "orders=1"), "must be type boolean"),
        (("orders", "--filter", "log=true"), "not one of the requested tables"),
        (("orders", "--filter", "true"), "--filter needs a table and a condition"),
    ],
)
def test_what_debezium_would_only_complain_about_in_its_log_is_refused_before_anything_is_written(
    headwater: Headwater, database, shop, arguments, words
):
    headwater("signal", "init", "--url", database)
    refused = headwater("signal", "snapshot", *arguments, "--url", database)
    assert refused.code == 2
    assert words in refused.err
    assert shop.execute(SIGNALS).fetchall() == []
    assert shop.execute("SELECT to_regclass('log') IS NOT NULL").fetchone() == (True,)


def test_blocking_snapshots_need_no_key_and_say_what_that_means(headwater: Headwater, database, shop):
    headwater("signal", "init", "--url", database)
    asked = headwater("signal", "snapshot", "log", "--blocking", "--url", database, "--json")
    assert asked.code == 0
    assert asked.json["notices"][0].startswith("public.log has no primary key")
    assert json.loads(asked.json["data"]) == {"type": "blocking", "data-collections": ["public.log"]}


def test_stop_pause_and_resume_write_their_signals_and_status_shows_them_all(headwater: Headwater, database, shop):
    url = ("--url", database)
    assert headwater("signal", "stop", *url).code == 2  # there is no signal table yet
    headwater("signal", "init", *url)
    assert headwater("signal", "status", *url).out == "public.debezium_signal: no signals\n"
    ids = [
        headwater("signal", *command, *url, "--json").json["id"]
        for command in (("snapshot", "orders"), ("pause",), ("resume",), ("stop", "orders"), ("stop",))
    ]
    chunk = str(uuid.uuid4())
    shop.execute(
        "INSERT INTO debezium_signal VALUES (%s, 'snapshot-window-open', %s)",
        [f"{chunk}-open", '{"openWindowTimestamp": "2026-03-02T09:30:00.5Z"}'],
    )
    status = headwater("signal", "status", *url, "--json").json
    assert [one["id"] for one in status["signals"]] == ids
    assert [one["type"] for one in status["signals"]] == [
        "execute-snapshot",
        "pause-snapshot",
        "resume-snapshot",
        "stop-snapshot",
        "stop-snapshot",
    ]
    first = status["signals"][0]
    assert (first["tables"], first["progress"]) == (["public.orders"], "reading chunk 1")
    assert first["chunks"] == {"begun": 1, "read": 0}
    assert first["written"].startswith("20")
    shown = headwater("signal", "status", *url, "--limit", "2")
    assert len(shown.out.splitlines()) == 4
    assert "the newest 2 of 5" in shown.err


def test_all_is_stopped_by_name_where_debezium_would_stumble_over_another_name(headwater: Headwater, database, shop):
    headwater("signal", "init", "--url", database)
    shop.execute('CREATE TABLE "odd name" (id int PRIMARY KEY); CREATE PUBLICATION everything FOR ALL TABLES')
    refused = headwater("signal", "stop", "--url", database)
    assert (refused.code, "'public.odd name'" in refused.err) == (2, True)
    headwater("signal", "snapshot", "orders", "--url", database)
    headwater("signal", "snapshot", "log", "--blocking", "--url", database)
    stopped = headwater("signal", "stop", "--url", database, "--json")
    assert json.loads(stopped.json["data"]) == {"type": "incremental", "data-collections": ["public.orders"]}
    shop.execute('DROP TABLE "odd name"')
    assert json.loads(headwater("signal", "stop", "--url", database, "--json").json["data"]) == {"type": "incremental"}


def test_odd_names_of_signal_tables_are_quoted(headwater: Headwater, database, shop):
    flags = ("--url", database, "--table", 'public."a%s"".b; --"')
    assert headwater("signal", "init", *flags).code == 0
    assert headwater("signal", "pause", *flags).code == 0
    assert len(headwater("signal", "status", *flags, "--json").json["signals"]) == 1


@pytest.mark.parametrize(
    "command", [("init",), ("snapshot", "orders"), ("stop",), ("pause",), ("resume",), ("status",)]
)
def test_no_signal_command_shows_a_password(headwater: Headwater, database, shop, command, monkeypatch):
    monkeypatch.setenv("PG_URL", database.replace("postgres@", f"postgres:{SECRET}@"))
    monkeypatch.setenv("AWAY", f"postgresql://postgres:{SECRET}@127.0.0.1:1/gone")
    for url in ("${PG_URL}", "${AWAY}", f"postgresql://u:{SECRET}@{SECRET}@h/d"):
        for extra in ((), ("--json",), ("--debug",)):
            done = headwater("signal", *command, "--url", url, *extra)
            assert SECRET not in done.out + done.err
    assert headwater("signal", *command, "--url", "${AWAY}").code == 3


def test_notifications_need_brokers_and_a_topic(headwater: Headwater, database):
    assert headwater("signal", "status", "--url", database, "--brokers", "h:1").code == 2


def test_a_topic_of_notifications_that_is_not_there_is_told_by_name(headwater: Headwater, kafka, database):
    headwater("signal", "init", "--url", database)
    flags = ("--url", database, "--brokers", kafka.brokers, "--notifications")
    missing = headwater("signal", "status", *flags, "no_such_topic")
    assert (missing.code, "no topic no_such_topic" in missing.err) == (2, True)
    assert "notification.sink.topic.name" in missing.err
    assert headwater("signal", "status", *flags, kafka.topic()).code == 0
