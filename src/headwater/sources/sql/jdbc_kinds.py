"""The kinds of database that are reached through JDBC, and what each needs to be read exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# java.sql.Connection's numbers; SNAPSHOT is the SQL Server driver's own.
READ_COMMITTED, REPEATABLE_READ, SNAPSHOT = 2, 4, 4096


@dataclass(frozen=True)
class JdbcKind:
    """One kind of database."""

    name: str  # as its users say it
    dialect: str  # sqlglot's name
    driver: str  # the driver's class
    artifact: str  # where Maven has the driver
    properties: Mapping[str, str] = field(default_factory=dict)  # of every connection: they win over the user's
    session: str = ""  # the statement that every session begins with: times are read and compared in UTC
    isolation: int | None = None  # under which everything asked of one view agrees; None: the database's own
    isolation_allowed: str = ""  # a query that gives 1 where that isolation may be used; else READ COMMITTED is
    begin: str = ""  # the statement that begins a view
    by_catalog: bool = False  # what users call a schema, the driver calls a catalog
    one_writer: bool = False  # writers come one after the other


MYSQL = JdbcKind(
    "MySQL",
    "mysql",
    "com.mysql.cj.jdbc.Driver",
    "com.mysql:mysql-connector-j",
    {
        "tinyInt1isBit": "false",  # TINYINT(1) holds more than two values
        "yearIsDateType": "false",
        "zeroDateTimeBehavior": "EXCEPTION",
        "useCursorFetch": "true",  # or the driver holds a whole part of the table in memory
    },
    session="SET time_zone = '+00:00'",
    isolation=REPEATABLE_READ,
    by_catalog=True,
)
MARIADB = JdbcKind(
    "MariaDB",
    "mysql",
    "org.mariadb.jdbc.Driver",
    "org.mariadb.jdbc:mariadb-java-client",
    {"tinyInt1isBit": "false", "yearIsDateType": "false"},
    session="SET time_zone = '+00:00'",
    isolation=REPEATABLE_READ,
    by_catalog=True,
)
SQL_SERVER = JdbcKind(
    "SQL Server",
    "tsql",
    "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "com.microsoft.sqlserver:mssql-jdbc",
    isolation=SNAPSHOT,
    isolation_allowed="SELECT snapshot_isolation_state FROM sys.databases WHERE database_id = DB_ID()",
)
ORACLE = JdbcKind(
    "Oracle",
    "oracle",
    "oracle.jdbc.OracleDriver",
    "com.oracle.database.jdbc:ojdbc11",
    session="ALTER SESSION SET TIME_ZONE = '+00:00'",
    begin="SET TRANSACTION READ ONLY",
)
POSTGRES = JdbcKind(
    "PostgreSQL",
    "postgres",
    "org.postgresql.Driver",
    "org.postgresql:postgresql",
    session="SET TIME ZONE 'UTC'",
    isolation=REPEATABLE_READ,
)
SQLITE = JdbcKind(
    "SQLite",
    "sqlite",
    "org.sqlite.JDBC",
    "org.xerial:sqlite-jdbc",
    {"open_mode": "1"},  # read-only: a missing file is an error, and nothing is ever created
    one_writer=True,
)

# By the word after `jdbc:`.
KINDS: Mapping[str, JdbcKind] = {
    "mysql": MYSQL,
    "mariadb": MARIADB,
    "sqlserver": SQL_SERVER,
    "oracle": ORACLE,
    "postgresql": POSTGRES,
    "sqlite": SQLITE,
}
