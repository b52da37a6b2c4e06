"""The address of a PostgreSQL server and our login: from flags, the environment, or a `.env` file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.pg.connection import Connection, connect, translated

_DOTENV = Path(".env")
_PREFIX = "POSTGRESQL_"
_CONNECT_SECONDS = 10
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_NO_SERVER = "write --url, or --host, or POSTGRESQL_HOST in the environment or in a .env file (--env FILE)"
_NO_DATABASE = "write --database NAME, or POSTGRESQL_DATABASE in the environment or in a .env file"


@dataclass(frozen=True)
class Address:
    """One database of a server; prints without its password (G11)."""

    text: str
    database: str
    conninfo: Secret

    def __str__(self) -> str:
        return self.text


def addresses(login: Login, environment: Mapping[str, str] = os.environ, folder: Path = Path()) -> Sequence[Address]:
    """The databases of the login, at least one. Raises InputError."""
    variables = {**_dotenv(login, folder), **environment}
    server = _url_parameters(login, variables) if login.url is not None else _flag_parameters(login, variables)
    if login.password_env is not None:
        server["password"] = _variable(variables, login.password_env, "--password-env")
    names = login.databases or _databases(server.get("dbname") or variables.get(f"{_PREFIX}DATABASE", ""))
    if not names:
        raise InputError("no database is given", hint=_NO_DATABASE)
    return [_address({**server, "dbname": name}) for name in names]


def only_address(login: Login, environment: Mapping[str, str] = os.environ, folder: Path = Path()) -> Address:
    """The one database of the login. Raises InputError if it names several."""
    databases = addresses(login, environment, folder)
    if len(databases) > 1:
        names = ", ".join(address.database for address in databases)
        raise InputError(
            f"this command works on one database, and several are given: {names}", hint="write --database NAME"
        )
    return databases[0]


def variable(
    login: Login, name: str, flag: str, environment: Mapping[str, str] = os.environ, folder: Path = Path()
) -> str:
    """A variable of the environment or of the `.env` file; the error names `flag`."""
    return _variable({**_dotenv(login, folder), **environment}, name, flag)


@contextmanager
def connected(address: Address) -> Iterator[Connection]:
    """A connection, closed after the block; psycopg's errors in it become ours."""
    with translated(str(address), "command"), connect(address.conninfo) as connection:
        yield connection


def _dotenv(login: Login, folder: Path) -> Mapping[str, str]:
    if login.env_file is not None:
        return read_dotenv(folder / login.env_file)
    file = folder / _DOTENV
    # --url is complete: a .env file that happens to be there must not change it.
    return read_dotenv(file) if login.url is None and file.is_file() else {}


def _url_parameters(login: Login, variables: Mapping[str, str]) -> dict[str, str]:
    if login.host or login.port or login.user:
        raise InputError("--url excludes --host, --port and --user")
    url = _VARIABLE.sub(lambda match: _variable(variables, match[1], "--url"), login.url or "")
    _refuse_unquoted_signs(url)
    try:
        parsed = conninfo_to_dict(url)
    except psycopg.Error:
        # Without libpq's message: it quotes what it could not parse, which may be the password (G11).
        raise InputError(
            "--url is not the address of a PostgreSQL database", hint="write postgresql://user@host:5432/database"
        ) from None
    return {name: str(value) for name, value in parsed.items() if value is not None}


def _refuse_unquoted_signs(url: str) -> None:
    """Refuse a password with a plain @ or /: libpq would take its end for a host, and errors would show it (G11)."""
    _, scheme, rest = url.partition("://")
    if not scheme:
        return
    authority, _, path = rest.partition("?")[0].partition("/")
    if authority.count("@") > 1 or "@" in path:
        raise InputError(
            "--url holds an @ or a / that belongs to a name or a password",
            hint="write %40 for @, %2F for /, %3A for : in them; or use --host, --user and --password-env",
        )


def _flag_parameters(login: Login, variables: Mapping[str, str]) -> dict[str, str]:
    flags = {"host": login.host, "port": None if login.port is None else str(login.port), "user": login.user}
    parameters = {name: value or variables.get(f"{_PREFIX}{name.upper()}") for name, value in flags.items()}
    if not parameters["host"]:
        raise InputError("name the PostgreSQL server", hint=_NO_SERVER)
    if parameters["port"] and not parameters["port"].isdecimal():
        raise InputError(f"{_PREFIX}PORT is not a number", hint="use for example 5432")
    parameters["password"] = variables.get(f"{_PREFIX}PASSWORD")
    return {name: value for name, value in parameters.items() if value}


def _databases(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _variable(variables: Mapping[str, str], name: str, flag: str) -> str:
    if name not in variables:
        raise InputError(f"{flag}: variable {name} is not set", hint=f"set it: export {name}=…")
    return variables[name]


def _address(parameters: Mapping[str, str]) -> Address:
    user = f"{parameters['user']}@" if "user" in parameters else ""
    port = f":{parameters['port']}" if "port" in parameters else ""
    text = f"postgresql://{user}{parameters.get('host', '')}{port}/{parameters['dbname']}"
    conninfo = make_conninfo("", **{"connect_timeout": str(_CONNECT_SECONDS), **parameters})
    return Address(text, parameters["dbname"], Secret(conninfo))


_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)")
_DOUBLE_QUOTED = re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE_QUOTED = re.compile(r"'(?P<value>[^']*)'\s*(?:#.*)?")
_ESCAPED = {"n": "\n", "t": "\t"}


def read_dotenv(file: Path) -> Mapping[str, str]:
    """The file's variables. An error names the line and never its content (G11)."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read {file}: {reason}", hint="write --env FILE with the right path") from None
    variables = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        value = None if match is None else _value(match["value"])
        if match is None or value is None:
            raise InputError(f"{file}:{number}: not a variable", hint="write NAME=value, or NAME='value'")
        variables[match["name"]] = value
    return variables


def _value(text: str) -> str | None:
    if text.startswith("'"):
        match = _SINGLE_QUOTED.fullmatch(text)
        return match["value"] if match else None
    if text.startswith('"'):
        match = _DOUBLE_QUOTED.fullmatch(text)
        return re.sub(r"\\(.)", lambda escape: _ESCAPED.get(escape[1], escape[1]), match["value"]) if match else None
    # Passwords may contain #: only after a space it begins a comment.
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()


@dataclass(frozen=True)
class Login:
    """The flags of a command. Variables named POSTGRESQL_… fill in what they leave out."""

    url: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password_env: str | None = None
    databases: tuple[str, ...] = ()
    env_file: Path | None = None
