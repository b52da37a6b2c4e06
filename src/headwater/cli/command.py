"""What all commands have in common: `--json`, `--debug`, exit codes, and errors without a stack trace."""

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

INTERRUPTED = 130


@dataclass(frozen=True)
class ProjectFlags:
    """Which project a command works on, and the settings that flags change in it."""

    folder: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)


_OUTPUT_FLAGS = {
    "json": Annotated[bool, typer.Option("--json", help="Print JSON to stdout; all talk goes to stderr.")],
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


def with_common_flags(function: Callable[..., None]) -> Callable[..., None]:
    """A command of the function: its parameters of type Output and ProjectFlags become the common flags."""
    declared = inspect.signature(function, eval_str=True).parameters.values()
    own = [parameter for parameter in declared if parameter.annotation not in {Output, ProjectFlags}]
    output = next(parameter.name for parameter in declared if parameter.annotation is Output)
    project = next((parameter.name for parameter in declared if parameter.annotation is ProjectFlags), None)

    def run(**given: Any) -> None:
        out = Output(json=given.pop("json"), debug=given.pop("debug"))
        try:
            if project is not None:
                given[project] = _project_flags(given.pop("project"), given.pop("progress"), given.pop("set"))
            function(**{output: out}, **given)
        except HeadwaterError as error:
            out.failure(error)
            raise typer.Exit(error.exit_code) from None
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read our output has enough (`| head`); the interpreter must not complain at exit either.
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
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
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
