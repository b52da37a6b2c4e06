"""What commands share: common flags, the flags of a PostgreSQL login, pipeline names with completion, confirmation, exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.cli.output import Output
from headwater.model.errors import HeadwaterError, InputError
from headwater.pg.address import Login

INTERRUPTED = 130


@dataclass(frozen=True)
class ProjectFlags:
    """Which project a command works on, and the settings that flags change in it."""

    folder: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)


_OUTPUT_FLAGS = {
    "json": Annotated[bool, typer.Option("--json", help="Print JSON to stdout; messages go to stderr.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")],
}
_PROJECT_FLAGS = {
    "project": Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="DIR",
            help="The folder with headwater.yaml. Default: beside the first pipeline, else here.",
        ),
    ],
    "progress": Annotated[
        str | None,
        typer.Option("--progress", metavar="URL", help="Another progress store."),
    ],
    "set": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Change a setting of headwater.yaml, such as lake.warehouse=./lake. Repeatable.",
        ),
    ],
}
COMMON_FLAGS = (*_PROJECT_FLAGS, *_OUTPUT_FLAGS)

File = Annotated[
    Path | None,
    typer.Option("--file", help="The pipeline's file. Default: the one with that name beside headwater.yaml."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def with_common_flags(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: its parameters of type Output and ProjectFlags become the common flags."""
    signature = inspect.signature(function, eval_str=True).parameters.values()
    specific = [parameter for parameter in signature if parameter.annotation not in {Output, ProjectFlags}]
    output = next(parameter.name for parameter in signature if parameter.annotation is Output)
    project = next((parameter.name for parameter in signature if parameter.annotation is ProjectFlags), None)

    def run(**arguments: Any) -> None:
        out = Output(json=arguments.pop("json"), debug=arguments.pop("debug"))
        try:
            if project is not None:
                arguments[project] = _project_flags(
                    arguments.pop("project"), arguments.pop("progress"), arguments.pop("set")
                )
            function(**{output: out}, **arguments)
        except HeadwaterError as error:
            out.failure(error)
            raise typer.Exit(error.exit_code) from None
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader closed the pipe (`| head`); the interpreter must not complain at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:  # noqa: BLE001 - the border to the user
            out.surprise(error)
            raise typer.Exit(1) from None

    flags = {**(_PROJECT_FLAGS if project else {}), **_OUTPUT_FLAGS}
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=annotation,
            default=False if name in _OUTPUT_FLAGS else None,
        )
        for name, annotation in flags.items()
    ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in specific]
    run.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*parameters, *common)}
    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    return run


def _project_flags(folder: Path | None, progress: str | None, settings: list[str] | None) -> ProjectFlags:
    overrides = {}
    for setting in settings or []:
        name, equals, value = setting.partition("=")
        if not equals:
            raise InputError("--set needs a name and a value", hint="write for example --set lake.warehouse=./lake")
        overrides[name] = value
    if progress is not None:
        overrides["progress"] = progress
    return ProjectFlags(folder, overrides)


def confirm(out: Output, action: str, *, yes: bool = False) -> None:
    """Ask on the terminal unless `yes`. Without a terminal, refuse (exit 2)."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{action} needs confirmation and stdin is not a terminal", hint="pass --yes")
    out.err.write(f"{action}? [y/N] ")
    out.err.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InputError("not confirmed; nothing was changed")


def seconds_of(flag: str, text: str) -> float:
    """The duration that a flag was given."""
    from headwater.config.settings import parse_duration

    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise InputError(f"{flag} {text}: {error}") from error


def complete_names(incomplete: str) -> list[str]:
    """Names in the store with this prefix; none on an error, which a completing shell must never see."""
    from headwater.config.load import load_project
    from headwater.progress.open import open_store

    try:
        store = open_store(load_project(Path.cwd()).progress_levels, Path.cwd())
        try:
            return [name for name in store.pipelines() if name.startswith(incomplete)]
        finally:
            store.close()
    except (HeadwaterError, OSError):
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", autocompletion=complete_names)]


_LOGIN_FLAGS = {
    "url": Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="postgresql://user@host:port/database; '${NAME}' is taken from the environment.",
        ),
    ],
    "host": Annotated[
        str | None, typer.Option("--host", help="The server's host. Default: POSTGRESQL_HOST.", show_default=False)
    ],
    "port": Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="The server's port. Default: POSTGRESQL_PORT, else 5432."),
    ],
    "user": Annotated[str | None, typer.Option("--user", help="The user. Default: POSTGRESQL_USER.")],
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
        typer.Option("--env", metavar="FILE", help="A file with these variables. Default: .env, if it exists."),
    ],
}


def with_login(function: Callable[..., None]) -> Callable[..., None]:
    """The function with its parameter of type Login expanded to flags."""
    all_parameters = list(inspect.signature(function, eval_str=True).parameters.values())
    login = next(parameter.name for parameter in all_parameters if parameter.annotation is Login)

    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in _LOGIN_FLAGS}
        databases, env_file = tuple(values.pop("database") or ()), values.pop("env")
        function(**{login: Login(databases=databases, env_file=env_file, **values)}, **arguments)

    flags = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)
        for name, annotation in _LOGIN_FLAGS.items()
    ]
    specific = [parameter for parameter in all_parameters if parameter.name != login]
    positional = [parameter for parameter in specific if parameter.kind is not inspect.Parameter.KEYWORD_ONLY]
    keywords = [parameter for parameter in specific if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    run.__signature__ = inspect.Signature([*positional, *keywords, *flags])  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    return run
