"""Addresses of databases that are reached through JDBC: from what users write to a URL without secrets (G11).

    mysql://user:password@host/shop         jdbc:mysql://host/shop
    mariadb://user:password@host/shop       jdbc:mysql://host/shop?permitMysqlScheme
    mssql://user:password@host/shop         jdbc:sqlserver://host        databaseName=shop
    oracle://user:password@host/service     jdbc:oracle:thin:@//host/service
    jdbc:…                                  the same without user, password and parameters

User, password and parameters (`?connectTimeout=5000`) become properties of the connection, which Spark keeps
out of its plans. MariaDB's driver is asked for by MySQL's scheme, because Spark knows no other name for that
dialect: under `jdbc:mariadb:` it would quote names as texts, and read the name of a column in every row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headwater.model.errors import InputError
from headwater.model.secret import masked
from headwater.sources.sql.jdbc_kinds import KINDS, JdbcKind

_SCHEMES = {"mysql": "mysql", "mariadb": "mariadb", "mssql": "sqlserver", "oracle": "oracle"}
_SERVER_PROPERTY = re.compile(r";\s*([^=;{}]+?)\s*=\s*(\{(?:[^}]|\}\})*\}|[^;]*)")
_ORACLE_USER = re.compile(r"(?P<prefix>jdbc:oracle:\w+:)(?P<user>\"[^\"]+\"|[^/@\"]+)/(?P<password>\"[^\"]*\"|.*)(?=@)")


@dataclass(frozen=True)
class JdbcAddress:
    """Where a database is, for its driver and for people."""

    kind: JdbcKind
    url: str  # without secrets
    shown: str
    properties: Mapping[str, str] = field(repr=False)


def is_jdbc(url: str) -> bool:
    """Whether an address is one of those that this module knows."""
    return url.startswith("jdbc:") or url.partition("://")[0] in _SCHEMES


def jdbc_address(url: str, folder: Path) -> JdbcAddress:
    """The address that a user's `url:` means; relative paths are taken from `folder`."""
    if not url.startswith("jdbc:"):
        return _plain(url)
    name = url.removeprefix("jdbc:").partition(":")[0]
    kind = KINDS.get(name)
    if kind is None:
        raise InputError(
            f"url: jdbc:{name} is no kind of database that can be read",
            hint=f"there are: {', '.join(f'jdbc:{known}:…' for known in KINDS)}",
        )
    match name:
        case "sqlserver":
            return _sql_server(url)
        case "oracle":
            return _oracle(url)
        case "sqlite":
            return _sqlite(url, folder)
        case _:
            return _with_parameters(kind, name, url)


def _plain(url: str) -> JdbcAddress:
    parts = _split(url)
    kind, host, path = KINDS[_SCHEMES[parts.scheme]], _host(parts), unquote(parts.path.lstrip("/"))
    properties = _properties(parts)
    if kind.dialect == "tsql":
        jdbc = f"jdbc:sqlserver://{host}"
        properties = {**({"databaseName": path} if path else {}), **properties}
    elif kind.dialect == "oracle":
        jdbc = f"jdbc:oracle:thin:@//{host}/{path}"
    else:
        jdbc = f"jdbc:mysql://{host}/{parts.path.lstrip('/')}"
    return _address(kind, jdbc, f"{parts.scheme}://{host}/{path}", properties)


def _with_parameters(kind: JdbcKind, name: str, url: str) -> JdbcAddress:
    parts = _split(url.removeprefix("jdbc:"))
    bare = f"jdbc:{name}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    spoken = bare if name == "postgresql" else bare.replace(f"jdbc:{name}:", "jdbc:mysql:", 1)
    return _address(kind, spoken, bare, _properties(parts))


def _sql_server(url: str) -> JdbcAddress:
    bare = url.partition(";")[0]
    properties = {
        found[1]: found[2][1:-1].replace("}}", "}") if found[2].startswith("{") else found[2]
        for found in _SERVER_PROPERTY.finditer(url)
    }
    return _address(KINDS["sqlserver"], bare, bare, properties)


def _oracle(url: str) -> JdbcAddress:
    found = _ORACLE_USER.match(url)
    if not found:
        return _address(KINDS["oracle"], url, url, {})
    bare = found["prefix"] + url[found.end() :]
    properties = {"user": found["user"].strip('"'), "password": found["password"].strip('"')}
    return _address(KINDS["oracle"], bare, bare, properties)


def _sqlite(url: str, folder: Path) -> JdbcAddress:
    path = url.removeprefix("jdbc:sqlite:")
    if not path.startswith(("file:", ":")):
        url = f"jdbc:sqlite:{folder.absolute() / path}"
    return _address(KINDS["sqlite"], url, url, {})


def _address(kind: JdbcKind, url: str, shown: str, properties: Mapping[str, str]) -> JdbcAddress:
    if kind is KINDS["mariadb"]:
        url += "?permitMysqlScheme"
    return JdbcAddress(kind, url, masked(shown), {**properties, **kind.properties})


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host = parts.port is not None or parts.hostname
    except ValueError:
        host = None
    # The address itself is not shown: what could not be understood may hold a password anywhere (G11).
    if not host:
        raise InputError(
            f"url: this is no address of a {url.partition(':')[0]} database",
            hint="write mysql://user:password@host:port/database, with %40 for @ and %2F for / in a password",
        )
    return parts


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _properties(parts: SplitResult) -> dict[str, str]:
    found = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.username is not None:
        found["user"] = unquote(parts.username)
    if parts.password is not None:
        found["password"] = unquote(parts.password)
    return found
