"""Flags that say where a PostgreSQL database is, common to all commands that work on one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.sources.postgres.readiness.login import Login

_FLAGS = {
    "url": Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="postgresql://user@host:port/database; '${NAME}' is taken from the environment.",
        ),
    ],
    "host": Annotated[
        str | None, typer.Option("--host", help="Of the server. Default: POSTGRESQL_HOST.", show_default=False)
    ],
    "port": Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Of the server. Default: POSTGRESQL_PORT, else 5432.")
    ],
    "user": Annotated[str | None, typer.Option("--user", help="Who we are there. Default: POSTGRESQL_USER.")],
    "password_env": Annotated[
        str | None,
        typer.Option(
            "--password-env", metavar="NAME", help="The variable that holds the password. Default: POSTGRESQL_PASSWORD."
        ),
    ],
    "database": Annotated[
        list[str] | None,
        typer.Option("--database", metavar="NAME", help="The database. Default: the URL's, else POSTGRESQL_DATABASE."),
    ],
    "env": Annotated[
        Path | None,
        typer.Option("--env", metavar="FILE", help="A file with these variables. Default: .env, if it is there."),
    ],
}


def with_login(function: Callable[..., None]) -> Callable[..., None]:
    """The function with its parameter of type Login spelled out as flags."""
    declared = list(inspect.signature(function, eval_str=True).parameters.values())
    login = next(parameter.name for parameter in declared if parameter.annotation is Login)

    def run(**given: Any) -> None:
        said = {name: given.pop(name) for name in _FLAGS}
        databases, env_file = tuple(said.pop("database") or ()), said.pop("env")
        function(**{login: Login(databases=databases, env_file=env_file, **said)}, **given)

    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
        for name, annotation in _FLAGS.items()
    ]
    own = [parameter for parameter in declared if parameter.name != login]
    positional = [parameter for parameter in own if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    named = [parameter for parameter in own if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    run.__signature__ = inspect.Signature([*positional, *named, *flags])  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    return run
