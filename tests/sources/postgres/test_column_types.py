"""Which kind a column is read as, by what the catalog says of its type."""

from __future__ import annotations

import psycopg
import pytest

from headwater.config.sources.postgres import PostgresSourceSettings
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.sources.postgres.catalog import ColumnTypes, Layout, WalColumn, tables_of

COLUMNS = {
    "int2": "int32", "int4": "int32", "int8": "int64", "bool": "bool", "real": "float32", "float8": "float64",
    "numeric(12,2)": "decimal(12,2)", "numeric(38,38)": "decimal(38,38)", "numeric(39,2)": "string",
    "numeric(3,-2)": "string", "numeric": "string", "text": "string", "varchar(3)": "string", "char(5)": "string",
    '"char"': "string", "name": "string", "bytea": "binary", "date": "date", "timestamp": "timestamp",
    "timestamptz(3)": "timestamptz", "time": "string", "jsonb": "string", "uuid": "string", "int4[]": "string",
    "int4range": "string", "mood": "string", "pair": "string", "price": "decimal(8,2)", "list_price": "decimal(8,2)",
    "short": "string", "positive": "int32", "many": "string", "price[]": "string", "moment": "timestamptz",
    "information_schema.cardinal_number": "int32", "information_schema.sql_identifier": "string",
}  # fmt: skip


class CountingSession(PostgresSession):
    """How often the server was asked."""

    asked = 0

    def fetch(self, sql, values=None):
        self.asked += 1
        return super().fetch(sql, values)


@pytest.fixture
def session(database):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("""
            CREATE TYPE mood AS ENUM ('sad'); CREATE TYPE pair AS (a int, b text);
            CREATE DOMAIN price AS numeric(8,2); CREATE DOMAIN list_price AS price CHECK (VALUE > 0);
            CREATE DOMAIN short AS char(3); CREATE DOMAIN positive AS int NOT NULL; CREATE DOMAIN many AS int[];
            CREATE DOMAIN moment AS timestamptz""")
        connection.execute(f"CREATE TABLE t ({', '.join(f'c{n} {declared}' for n, declared in enumerate(COLUMNS))})")
    session = CountingSession(Secret(database))
    yield session
    session.close()


def layout_of(session) -> Layout:
    settings = PostgresSourceSettings(url="postgresql://unused", tables=["t"], slot="s")
    return tables_of(session, settings, {}).tables["t"].layout


def test_every_type_has_its_kind_and_domains_that_of_their_base(session):
    layout = layout_of(session)
    session.asked = 0
    column_types = ColumnTypes(session)
    assert dict(zip(COLUMNS, column_types.of(layout, ()), strict=True)) == COLUMNS
    assert column_types.of(layout, ()) == tuple(COLUMNS.values())
    assert session.asked == 1


def test_types_of_postgresql_itself_are_not_asked_for(session):
    """A poll that finds such tables alone costs no query."""
    session.asked = 0
    columns = tuple(WalColumn(f"c{oid}", oid, -1, in_identity=False) for oid in (20, 25, 3802, 1007))
    assert ColumnTypes(session).of(Layout(1, "s", "t", "d", columns), ()) == ("int64", "string", "string", "string")
    assert session.asked == 0


def test_columns_that_are_wanted_as_text_are_text(session):
    layout = layout_of(session)
    assert ColumnTypes(session).of(layout, ("c0", "c27"))[0] == "string"
    assert ColumnTypes(session).of(layout, ("c0", "c27"))[27] == "string"


def test_a_type_that_is_gone_counts_as_text(session):
    """The log still speaks of it; its texts it has, and the catalog knows nothing of it any more."""
    unknown = Layout(1, "s", "t", "d", (WalColumn("a", 4_000_000_000, -1, in_identity=False),))
    assert ColumnTypes(session).of(unknown, ()) == ("string",)
    assert ColumnTypes(session).declared(unknown) == ("type 4000000000",)


def test_a_type_is_declared_as_the_server_writes_it(session):
    declared = dict(zip(COLUMNS, ColumnTypes(session).declared(layout_of(session)), strict=True))
    assert declared["numeric(12,2)"] == "numeric(12,2)"
    assert declared["char(5)"] == "character(5)"
    assert declared["list_price"] == "list_price"
    assert declared["int4[]"] == "integer[]"
