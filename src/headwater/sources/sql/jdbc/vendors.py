"""The databases behind JDBC drivers: what each needs to be read exactly, and a user's `url:` as a URL without secrets (G11)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headwater.model.errors import InputError
from headwater.model.secret import masked

# java.sql.Connection's numbers; SNAPSHOT is the SQL Server driver's own.
READ_COMMITTED, REPEATABLE_READ, SNAPSHOT = 2, 4, 4096


@dataclass(frozen=True)
class Vendor:
    """One database product."""

    name: str  # as its users say it
    dialect: str  # sqlglot's name
    driver: str  # the driver's class
    artifact: str  # where Maven has the driver
    properties: Mapping[str, str] = field(default_factory=dict)  # of every connection: they override the user's
    session: str = ""  # the statement that every session begins with: times are read and compared in UTC
    isolation: int | None = None  # under which all answers of one view agree; None: the database's default
    isolation_allowed: str = ""  # a query that returns 1 where that isolation is allowed; else READ COMMITTED is used
    begin: str = ""  # the statement that begins a view
    by_catalog: bool = False  # what users call a schema, the driver calls a catalog
    one_writer: bool = False  # writers commit one after the other


MYSQL = Vendor(
    "MySQL",
    "mysql",
    "com.mysql.cj.jdbc.Driver",
    "com.mysql:mysql-connector-j",
    {
        "tinyInt1isBit": "false",  # TINYINT(1) holds more than two values
        "yearIsDateType": "false",
        "zeroDateTimeBehavior": "EXCEPTION",
        "useCursorFetch": "true",  # else the driver holds the whole result in memory
    },
    session="SET time_zone = '+00:00'",
    isolation=REPEATABLE_READ,
    by_catalog=True,
)
MARIADB = Vendor(
    "MariaDB",
    "mysql",
    "org.mariadb.jdbc.Driver",
    "org.mariadb.jdbc:mariadb-java-client",
    {"tinyInt1isBit": "false", "yearIsDateType": "false"},
    session="SET time_zone = '+00:00'",
    isolation=REPEATABLE_READ,
    by_catalog=True,
)
SQL_SERVER = Vendor(
    "SQL Server",
    "tsql",
    "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "com.microsoft.sqlserver:mssql-jdbc",
    isolation=SNAPSHOT,
    isolation_allowed="SELECT snapshot_isolation_state FROM sys.databases WHERE database_id = DB_ID()",
)
ORACLE = Vendor(
    "Oracle",
    "oracle",
    "oracle.jdbc.OracleDriver",
    "com.oracle.database.jdbc:ojdbc11",
    session="ALTER SESSION SET TIME_ZONE = '+00:00'",
    begin="SET TRANSACTION READ ONLY",
)
POSTGRES = Vendor(
    "PostgreSQL",
    "postgres",
    "org.postgresql.Driver",
    "org.postgresql:postgresql",
    session="SET TIME ZONE 'UTC'",
    isolation=REPEATABLE_READ,
)
SQLITE = Vendor(
    "SQLite",
    "sqlite",
    "org.sqlite.JDBC",
    "org.xerial:sqlite-jdbc",
    {"open_mode": "1"},  # read-only: a missing file is an error, and nothing is ever created
    one_writer=True,
)

# By the word after `jdbc:`.
VENDORS: Mapping[str, Vendor] = {
    "mysql": MYSQL,
    "mariadb": MARIADB,
    "sqlserver": SQL_SERVER,
    "oracle": ORACLE,
    "postgresql": POSTGRES,
    "sqlite": SQLITE,
}


# mysql://user:password@host/shop         jdbc:mysql://host/shop
#     mariadb://user:password@host/shop       jdbc:mysql://host/shop?permitMysqlScheme
#     mssql://user:password@host/shop         jdbc:sqlserver://host        databaseName=shop
#     oracle://user:password@host/service     jdbc:oracle:thin:@//host/service
#     jdbc:…                                  the same without user, password and parameters
#
# User, password and parameters (`?connectTimeout=5000`) become properties of the connection, which Spark hides
# in its plans. MariaDB's driver is used under MySQL's scheme, because Spark knows that dialect by no other name:
# under `jdbc:mariadb:` it would quote names as texts, and read the name of a column in every row.

_SCHEMES = {"mysql": "mysql", "mariadb": "mariadb", "mssql": "sqlserver", "oracle": "oracle"}
_SERVER_PROPERTY = re.compile(r";\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
_ORACLE_USER = re.compile(r"(?P<prefix>jdbc:oracle:\w+:)(?P<user>\"[^\"]+\"|[^/@\"]+)/(?P<password>\"[^\"]*\"|.*)(?=@)")


@dataclass(frozen=True)
class JdbcAddress:
    """Where a database is, for its driver and for people."""

    vendor: Vendor
    url: str  # without secrets
    text: str
    properties: Mapping[str, str] = field(repr=False)


def is_jdbc(url: str) -> bool:
    """True if a JDBC driver serves this address."""
    return url.startswith("jdbc:") or url.partition("://")[0] in _SCHEMES


def jdbc_address(url: str, folder: Path) -> JdbcAddress:
    """The address of a user's `url:`; relative paths start at `folder`."""
    if not url.startswith("jdbc:"):
        return _short_address(url)
    name = url.removeprefix("jdbc:").partition(":")[0]
    vendor = VENDORS.get(name)
    if vendor is None:
        raise InputError(
            f"url: jdbc:{name} is not supported",
            hint=f"supported: {', '.join(f'jdbc:{scheme}:…' for scheme in VENDORS)}",
        )
    match name:
        case "sqlserver":
            return _sql_server(url)
        case "oracle":
            return _oracle(url)
        case "sqlite":
            return _sqlite(url, folder)
        case _:
            return _with_parameters(vendor, name, url)


def _short_address(url: str) -> JdbcAddress:
    parts = _split(url)
    vendor, path = VENDORS[_SCHEMES[parts.scheme]], unquote(parts.path.lstrip("/"))
    host = parts.netloc.rpartition("@")[2]
    properties = _properties(parts)
    if vendor.dialect == "tsql":
        jdbc = f"jdbc:sqlserver://{host}"
        properties = {**({"databaseName": path} if path else {}), **properties}
    elif vendor.dialect == "oracle":
        jdbc = f"jdbc:oracle:thin:@//{host}/{path}"
    else:
        jdbc = f"jdbc:mysql://{host}/{parts.path.lstrip('/')}"
    return _address(vendor, jdbc, f"{parts.scheme}://{host}/{path}", properties)


def _with_parameters(vendor: Vendor, name: str, url: str) -> JdbcAddress:
    parts = _split(url.removeprefix("jdbc:"))
    bare = f"jdbc:{name}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    jdbc = bare if name == "postgresql" else bare.replace(f"jdbc:{name}:", "jdbc:mysql:", 1)
    return _address(vendor, jdbc, bare, _properties(parts))


def _sql_server(url: str) -> JdbcAddress:
    bare = url.partition(";")[0]
    properties = {
        match[1]: match[2][1:-1].replace("}}", "}") if match[2].startswith("{") else match[2]
        for match in _SERVER_PROPERTY.finditer(url)
    }
    return _address(VENDORS["sqlserver"], bare, bare, properties)


def _oracle(url: str) -> JdbcAddress:
    match = _ORACLE_USER.match(url)
    if not match:
        return _address(VENDORS["oracle"], url, url, {})
    bare = match["prefix"] + url[match.end() :]
    properties = {"user": match["user"].strip('"'), "password": match["password"].strip('"')}
    return _address(VENDORS["oracle"], bare, bare, properties)


def _sqlite(url: str, folder: Path) -> JdbcAddress:
    path = url.removeprefix("jdbc:sqlite:")
    if not path.startswith(("file:", ":")):
        url = f"jdbc:sqlite:{folder.absolute() / path}"
    return _address(VENDORS["sqlite"], url, url, {})


def _address(vendor: Vendor, url: str, text: str, properties: Mapping[str, str]) -> JdbcAddress:
    if vendor is VENDORS["mariadb"]:
        url += "?permitMysqlScheme"
    return JdbcAddress(vendor, url, masked(text), {**properties, **vendor.properties})


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host = parts.port is not None or parts.hostname
    except ValueError:
        host = None
    # The error does not show the address: a password may be anywhere in it (G11).
    if not host:
        raise InputError(
            f"url: cannot parse the address of a {url.partition(':')[0]} database",
            hint="write mysql://user:password@host:port/database, with %40 for @ and %2F for / in a password",
        )
    return parts


def _properties(parts: SplitResult) -> dict[str, str]:
    properties = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.username is not None:
        properties["user"] = unquote(parts.username)
    if parts.password is not None:
        properties["password"] = unquote(parts.password)
    return properties
