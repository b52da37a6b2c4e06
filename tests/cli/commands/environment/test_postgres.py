"""`headwater postgres check` and `prepare` against a real server."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from headwater.model.errors import SourceUnreachable
from headwater.pg.address import Login, connected, only_address
from headwater.services.postgres_setup.preparation import Preparation, Statement, apply
from headwater.services.stack.postgres import running_postgres
from tests.support.command_line import Headwater

SECRET = "hunter2-s3cret"  # noqa: S105 - the one that must not show
ODD_SCHEMA, ODD_TABLE = 'Odd."Schema', 'a"b; DROP TABLE sales.orders; -- %s \n'

TABLES = """
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id int PRIMARY KEY, item text, twice int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE sales.customers (code text NOT NULL, name text);
CREATE UNIQUE INDEX customers_code ON sales.customers (code);
CREATE TABLE sales.log (at timestamptz, line text);
CREATE TABLE sales.parts (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE sales.parts_2025 PARTITION OF sales.parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE sales.parts_2026 PARTITION OF sales.parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE UNLOGGED TABLE sales.cache (id int PRIMARY KEY);
CREATE VIEW sales.items AS SELECT item FROM sales.orders;
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE sales.remote (id int) SERVER elsewhere;
CREATE TABLE public.other (id int PRIMARY KEY);
"""


@pytest.fixture
def sales(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute(f"CREATE SCHEMA {quoted(ODD_SCHEMA)}")
        connection.execute(f"CREATE TABLE {quoted(ODD_SCHEMA)}.{quoted(ODD_TABLE)} (id int PRIMARY KEY)")
        yield connection


@pytest.fixture
def role(postgres_url: str, database: str) -> Iterator[str]:
    """The name of a role that nobody else uses, dropped after the test if the test made it."""
    name = f"capture_{uuid.uuid4().hex[:8]}"
    yield name
    for url in (database, postgres_url):
        with psycopg.connect(url, autocommit=True) as admin:
            if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
                admin.execute(f'DROP OWNED BY "{name}"')
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f'DROP ROLE IF EXISTS "{name}"')


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def states(report: dict[str, object], subject: str) -> list[str]:
    return [finding["state"] for finding in report["findings"] if finding["subject"] == subject]


def as_role(database: str, role: str) -> str:
    return database.replace("postgres@", f"{role}@")


def test_the_sql_that_check_prints_makes_the_server_ready(headwater: Headwater, database, sales, role):
    flags = (
        "--url",
        database,
        "--table",
        "sales.*",
        "--exclude",
        "sales.cache",
        "--role",
        role,
        "--publication",
        "shop",
    )
    first = headwater("postgres", "check", *flags, "--json")
    assert (first.code, first.json["ready"]) == (1, False)
    assert states(first.json, f"role {role}") == ["missing"]
    assert states(first.json, "table sales.log") == ["missing"]
    rounds = 0
    check = first
    while check.code == 1:
        rounds += 1
        assert rounds <= 3, check.out
        for statement in check.json["sql"]:
            sales.execute(statement)
        check = headwater("postgres", "check", *flags, "--json")
    assert check.code == 0
    assert check.json["ready"] is True
    assert check.json["sql"] == []
    sales.execute("INSERT INTO sales.log VALUES (now(), 'a')")
    sales.execute("UPDATE sales.log SET line = 'b'")


def test_check_says_in_words_what_is_missing_and_how_to_mend_it(headwater: Headwater, database, sales):
    output = headwater("postgres", "check", "--url", database, "--table", "sales.customers", "--table", "sales.orders")
    assert output.code == 1
    assert "none publishes sales.customers, sales.orders" in output.out
    assert '  CREATE PUBLICATION "headwater" FOR TABLE "sales"."customers", "sales"."orders";' in output.out
    assert "it has no primary key: once published, UPDATE and DELETE fail in your application" in output.out
    assert '  ALTER TABLE "sales"."customers" REPLICA IDENTITY USING INDEX "customers_code";' in output.out
    assert "changes do not hold the generated columns twice" in output.out
    assert output.out.rstrip().endswith("not ready: 2 items missing")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sales.cache", "is unlogged"),
        ("sales.items", "is a view"),
        ("sales.remote", "is a foreign table"),
    ],
)
def test_what_is_in_no_log_is_never_ready_and_never_published(headwater: Headwater, database, sales, name, words):
    checked = headwater("postgres", "check", "--url", database, "--table", name, "--json")
    assert checked.code == 1
    assert words in checked.out
    refused = headwater("postgres", "prepare", "--url", database, "--table", name, "--apply", "--yes")
    assert refused.code == 2
    assert f"{name} {words}" in refused.err
    assert sales.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)


def test_a_temporary_table_is_refused(headwater: Headwater, database, sales):
    sales.execute("CREATE TEMPORARY TABLE scratch (id int PRIMARY KEY)")
    ((schema,),) = sales.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchall()
    refused = headwater("postgres", "prepare", "--url", database, "--table", f"{schema}.scratch")
    assert (refused.code, "is temporary, and not in the WAL" in refused.err) == (2, True)


def test_prepare_prints_sql_that_can_be_piped_and_changes_nothing_itself(headwater: Headwater, database, sales, role):
    flags = ("--url", database, "--table", "sales.orders", "--table", "sales.parts", "--role", role)
    printed = headwater("postgres", "prepare", *flags)
    assert printed.code == 0
    assert printed.out.splitlines() == [
        f'CREATE ROLE "{role}" LOGIN REPLICATION;',
        f'GRANT USAGE ON SCHEMA "sales" TO "{role}";',
        f'GRANT SELECT ON TABLE "sales"."orders", "sales"."parts" TO "{role}";',
        'CREATE PUBLICATION "headwater" FOR TABLE "sales"."orders", "sales"."parts" WITH (publish_via_partition_root = true);',
    ]
    assert sales.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    sales.execute(printed.out)
    again = headwater("postgres", "prepare", *flags, "--json")
    assert (again.code, again.json["statements"]) == (0, [])
    assert "nothing to do" in headwater("postgres", "prepare", *flags, "--apply").out
    assert headwater("postgres", "check", *flags, "--publication", "headwater").code == 0


def test_the_role_may_read_these_tables_and_capture_and_nothing_else(
    headwater: Headwater, database, sales, role, monkeypatch
):
    monkeypatch.setenv("CAPTURE_PASSWORD", SECRET)
    flags = ("--url", database, "--table", "sales.orders", "--role", role, "--role-password-env", "CAPTURE_PASSWORD")
    done = headwater("postgres", "prepare", *flags, "--apply", "--yes")
    assert done.code == 0, done.err
    assert done.out == "done: 5 statements\n"
    assert f"""ALTER ROLE "{role}" PASSWORD '****';""" in done.err
    assert SECRET not in done.out + done.err
    assert password_is(sales, role, SECRET)
    with psycopg.connect(as_role(database, role), autocommit=True) as capture:
        assert capture.execute("SELECT count(*) FROM sales.orders").fetchone() == (0,)
        for refused in (
            "INSERT INTO sales.orders VALUES (1, 'a')",
            "SELECT * FROM sales.customers",
            "SELECT * FROM public.other",
            "CREATE PUBLICATION p",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                capture.execute(refused)
        slot = f"{role}_slot"
        capture.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        capture.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    # The role that captures can ask for itself; no superuser is needed.
    own = headwater("postgres", "check", "--url", as_role(database, role), "--table", "sales.orders", "--json")
    assert own.code == 0, own.out
    assert states(own.json, f"role {role}") == ["ok"]


def password_is(connection: psycopg.Connection, role: str, password: str) -> bool:
    """By the server's own record of it: the test server lets everybody in."""
    ((stored_password,),) = connection.execute(
        "SELECT rolpassword FROM pg_authid WHERE rolname = %s", [role]
    ).fetchall()
    match = re.fullmatch(r"SCRAM-SHA-256\$(\d+):([^$]+)\$([^:]+):.+", stored_password)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(match[2]), int(match[1]))
    client = hmac.digest(salted, b"Client Key", "sha256")
    return hashlib.sha256(client).digest() == base64.b64decode(match[3])


def test_a_table_whose_updates_would_fail_is_refused_by_name_with_the_ways_out(headwater: Headwater, database, sales):
    flags = ("--url", database, "--table", "sales.orders", "--table", "sales.log", "--table", "sales.customers")
    refused = headwater("postgres", "prepare", *flags, "--apply", "--yes")
    assert refused.code == 2
    assert "sales.log: it has no primary key; sales.customers: it has no primary key" in refused.err
    assert 'ALTER TABLE "sales"."log" REPLICA IDENTITY FULL;' in refused.err
    assert 'ALTER TABLE "sales"."customers" REPLICA IDENTITY USING INDEX "customers_code";' in refused.err
    assert sales.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    # That is what the refusal keeps away from the application:
    sales.execute("INSERT INTO sales.log VALUES (now(), 'a'); CREATE PUBLICATION rash FOR TABLE sales.log")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        sales.execute("UPDATE sales.log SET line = 'b'")
    mended = headwater(
        "postgres", "prepare", *flags, "--replica-identity", "customers=customers_code", "--replica-identity", "full",
        "--apply", "--yes",
    )  # fmt: skip
    assert mended.code == 0, mended.err
    sales.execute("UPDATE sales.log SET line = 'b'; UPDATE sales.customers SET name = 'c'")
    identities = sales.execute("SELECT relname, relreplident::text FROM pg_class WHERE relname IN ('log', 'customers')")
    assert dict(identities.fetchall()) == {"log": "f", "customers": "i"}


def test_names_of_every_kind_are_quoted(headwater: Headwater, database, sales, role):
    name = f"{quoted(ODD_SCHEMA)}.{quoted(ODD_TABLE)}"
    flags = ("--url", database, "--table", name, "--publication", 'pub"; --', "--role", role)
    assert headwater("postgres", "prepare", *flags, "--apply", "--yes").code == 0
    checked = headwater("postgres", "check", *flags)
    assert checked.code == 0, checked.out
    assert "\n \n" not in checked.out
    assert sales.execute("SELECT pubname, schemaname, tablename FROM pg_publication_tables").fetchall() == [
        ('pub"; --', ODD_SCHEMA, ODD_TABLE)
    ]
    assert headwater("postgres", "prepare", *flags, "--json").json["statements"] == []
    assert sales.execute("SELECT count(*) FROM sales.orders").fetchone() == (0,)


def test_partitions_are_published_under_the_name_that_was_chosen(headwater: Headwater, database, sales):
    published = "SELECT tablename FROM pg_publication_tables WHERE pubname = 'headwater' ORDER BY 1"
    flags = ("--url", database, "--table", "sales.parts", "--apply", "--yes")
    assert headwater("postgres", "prepare", *flags, "--via-partitions").code == 0
    assert sales.execute(published).fetchall() == [("parts_2025",), ("parts_2026",)]
    by_leaf = headwater("postgres", "check", "--url", database, "--table", "sales.parts")
    assert by_leaf.code == 1
    assert "sends changes of sales.parts under the names of its partitions" in by_leaf.out
    assert headwater("postgres", "prepare", *flags).code == 0
    assert sales.execute(published).fetchall() == [("parts",)]
    assert headwater("postgres", "check", "--url", database, "--table", "sales.parts").code == 0


def test_an_existing_publication_is_added_to_and_keeps_what_it_has(headwater: Headwater, database, sales):
    sales.execute("CREATE PUBLICATION headwater FOR TABLE public.other, sales.parts_2025 WHERE (id > 3)")
    added = headwater("postgres", "prepare", "--url", database, "--table", "sales.orders", "--apply", "--yes", "--json")
    assert added.json["statements"] == ['ALTER PUBLICATION "headwater" ADD TABLE "sales"."orders";']
    assert "also publishes 2 other tables" in added.json["notices"][0]
    checked = headwater("postgres", "check", "--url", database, "--table", "sales.parts_2025", "--json")
    assert "sends only some rows of sales.parts_2025" in checked.out


def test_a_publication_s_own_tables_are_checked_when_none_is_named(headwater: Headwater, database, sales):
    sales.execute("CREATE PUBLICATION shop FOR TABLE sales.orders, sales.log")
    checked = headwater("postgres", "check", "--url", database, "--publication", "shop", "--json")
    assert checked.code == 1
    assert (states(checked.json, "table sales.orders")[0], states(checked.json, "table sales.log")) == (
        "ok",
        ["missing"],
    )


def test_a_slot_is_made_once_and_checked(headwater: Headwater, database, sales):
    slot = f"slot_{uuid.uuid4().hex[:8]}"
    flags = ("--url", database, "--table", "sales.orders", "--slot", slot)
    try:
        output = headwater("postgres", "prepare", *flags, "--apply", "--yes")
        assert (output.code, output.out) == (0, "done: 2 statements\n")
        assert "retains WAL from now on" in output.err
        assert headwater("postgres", "prepare", *flags, "--apply", "--yes").out.startswith("nothing to do")
        assert states(headwater("postgres", "check", *flags, "--json").json, f"slot {slot}") == ["ok"]
    finally:
        sales.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot]
        )


def test_input_that_makes_no_sense_exits_2_and_a_server_that_is_away_3(headwater: Headwater, database, sales):
    assert headwater("postgres", "check", "--url", "postgresql://u@127.0.0.1:1/d").code == 3
    unknown = headwater("postgres", "check", "--url", database, "--table", "sales.ordres")
    assert unknown.code == 2
    assert "did you mean sales.orders" in unknown.err
    assert headwater("postgres", "prepare", "--url", database).code == 2
    output = headwater("postgres", "prepare", "--url", database, "--table", "sales.orders", "--apply")
    assert output.code == 2
    assert "pass --yes" in output.err
    assert sales.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    for identity in ("default", "nosuch=full", "sales.orders=nosuch"):
        flags = ("--table", "sales.orders", "--replica-identity", identity)
        assert headwater("postgres", "prepare", "--url", database, *flags).code == 2


@pytest.mark.parametrize("command", [("check",), ("prepare", "--table", "sales.orders"), ("prepare", "--table", "x")])
def test_no_postgres_command_shows_a_password(headwater: Headwater, database, sales, command, monkeypatch):
    monkeypatch.setenv("PG_URL", database.replace("postgres@", f"postgres:{SECRET}@"))
    monkeypatch.setenv("AWAY", f"postgresql://postgres:{SECRET}@127.0.0.1:1/gone")
    for url in ("${PG_URL}", "${AWAY}", f"postgresql://u:{SECRET}/@h/d", f"host=h password={SECRET} no=such"):
        for extra in ((), ("--json",), ("--debug",)):
            done = headwater("postgres", *command, "--url", url, *extra)
            assert SECRET not in done.out + done.err


def test_a_table_in_use_is_not_waited_for_behind_which_the_application_would_wait(database, sales):
    preparation = Preparation((Statement("ALTER TABLE sales.log REPLICA IDENTITY FULL"),), ())
    address = only_address(Login(url=database))
    with psycopg.connect(database) as writer:
        writer.execute("INSERT INTO sales.log VALUES (now(), 'a')")
        with pytest.raises(SourceUnreachable, match="lock timeout"), connected(address) as connection:
            apply(connection, preparation, None, lock_timeout_seconds=0.2)
    with connected(address) as connection:
        apply(connection, preparation, None)


def test_a_server_without_logical_replication_is_told_so(headwater: Headwater):
    settings = {"wal_level": "replica", "max_replication_slots": "0", "max_wal_senders": "0", "shared_buffers": "16MB"}
    with running_postgres(settings) as server, psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE orders (id int PRIMARY KEY); CREATE ROLE rds_superuser; CREATE ROLE rds_replication"
        )
        admin.execute("CREATE ROLE capture LOGIN; GRANT SELECT ON orders TO capture; GRANT rds_replication TO capture")
        flags = ("--url", server.url(), "--table", "orders")
        check = headwater("postgres", "check", *flags, "--role", "capture", "--json")
        assert check.code == 1
        for subject in ("wal_level", "max_replication_slots", "max_wal_senders"):
            assert states(check.json, subject) == ["missing"]
        assert "rds.logical_replication" in check.out
        assert states(check.json, "role capture") == ["ok"]
        refused = headwater("postgres", "prepare", *flags, "--slot", "s", "--apply", "--yes")
        assert (refused.code, "a slot needs wal_level = logical" in refused.err) == (2, True)
        assert "wal_level is replica" in headwater("postgres", "prepare", *flags).err


def test_a_slot_whose_log_is_gone_is_lost_and_told_so(headwater: Headwater):
    settings = {
        "max_slot_wal_keep_size": "1MB",
        "min_wal_size": "32MB",
        "max_wal_size": "32MB",
        "shared_buffers": "16MB",
    }
    with running_postgres(settings) as server, psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE orders")
        admin.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        flags = ("--url", server.url(), "--table", "orders", "--slot", "s", "--json")
        assert headwater("postgres", "check", *flags).code == 0
        for _ in range(4):
            admin.execute("INSERT INTO orders SELECT max(id) + 1 FROM (SELECT id FROM orders UNION ALL SELECT 0) AS o")
            admin.execute("SELECT pg_switch_wal()")
        admin.execute("CHECKPOINT")
        lost = headwater("postgres", "check", *flags)
        assert lost.code == 1
        assert lost.json["sql"] == ["SELECT pg_drop_replication_slot('s');"]
        assert "has removed WAL that it still needs" in lost.out
