"""The command line. Commands live in files of their own and import what they need when they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headwater import __version__
from headwater.cli import (
    bookmarks,
    connect,
    connect_template,
    postgres,
    postgres_status,
    rejects,
    signal,
    signal_status,
)
from headwater.cli.command import with_common_flags
from headwater.cli.doctor import doctor
from headwater.cli.jars import jars
from headwater.cli.label import label
from headwater.cli.output import Output
from headwater.cli.plan import check, plan
from headwater.cli.postgres_flags import with_login
from headwater.cli.rewind import rewind
from headwater.cli.run import run
from headwater.cli.schema import schema
from headwater.cli.sql import sql
from headwater.cli.stack import stack
from headwater.cli.status import history, marks, status
from headwater.cli.verify import verify

_FIRST_STEPS = """\
Headwater keeps an Apache Iceberg lakehouse in step with operational systems.

  headwater demo                  a small shop, three cycles, a crash and its recovery: see it work
  headwater plan content.yaml     what the next cycle would read; changes nothing
  headwater run content.yaml      read what is new and land it (--once: one cycle)
  headwater status                every pipeline's mark and last outcome
  headwater sql "SELECT …"        ask the lake
  headwater doctor                is everything there that is needed?

All commands: headwater --help
"""

app = typer.Typer(
    name="headwater",
    help="Keeps an Apache Iceberg lakehouse in step with operational systems, and never remembers more than what has "
    "landed. Exits 0: done, 1: the run failed, 2: your input, 3: your environment.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def first_steps(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Show the way in when no command is given."""
    if version:
        typer.echo(f"headwater {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(_FIRST_STEPS, nl=False)


def demo(
    out: Output,
    *,
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo keeps its files.")] = Path("headwater-demo"),
) -> None:
    """Watch Headwater work, with a crash and its recovery.

    A small shop in SQLite, three cycles into a local lake. The files stay, to be looked at.
    """
    from headwater.cli.demo import run_demo  # noqa: PLC0415 - only the demo pays for it

    run_demo(folder, out)


for _function in (
    demo,
    run,
    plan,
    check,
    status,
    history,
    marks,
    rewind,
    label,
    verify,
    sql,
    stack,
    jars,
    schema,
    doctor,
):
    app.command(_function.__name__)(with_common_flags(_function))


def _add_group(
    name: str, about: str, commands: Mapping[str, Callable[..., None]], within: typer.Typer = app
) -> typer.Typer:
    group = typer.Typer(name=name, help=about)
    for command, function in commands.items():
        group.command(command)(with_common_flags(function))
    within.add_typer(group)
    return group


_add_group(
    "rejects",
    "Rows that were set aside because they could not be kept.",
    {"list": rejects.list_rejects, "show": rejects.show, "replay": rejects.replay},
)
_add_group(
    "bookmarks",
    "What a source of objects remembers of each of them.",
    {
        "list": bookmarks.list_bookmarks,
        "show": bookmarks.show,
        "count": bookmarks.count,
        "remove": bookmarks.remove,
        "retry": bookmarks.retry,
        "export": bookmarks.export,
        "import": bookmarks.import_bookmarks,
    },
)
_connect = _add_group(
    "connect",
    "Connectors of a Kafka Connect cluster: from files, with their state and their errors.",
    {
        "apply": connect.apply,
        "status": connect.status,
        "restart": connect.restart,
        "pause": connect.pause,
        "resume": connect.resume,
        "stop": connect.stop,
        "delete": connect.delete,
        "plugins": connect.plugins,
        "validate": connect.validate,
    },
)
_add_group(
    "template",
    "Files of connectors to begin with.",
    {"postgres": connect_template.postgres, "s3": connect_template.s3},
    within=_connect,
)

_add_group(
    "postgres",
    "Whether PostgreSQL servers are ready for change capture, and how their slots stand.",
    {
        "check": with_login(postgres.check),
        "prepare": with_login(postgres.prepare),
        "status": postgres_status.status,
    },
)
_add_group(
    "signal",
    "Ask a running Debezium connector for snapshots.",
    {
        "init": with_login(signal.init),
        "snapshot": with_login(signal.snapshot),
        "stop": with_login(signal.stop),
        "pause": with_login(signal.pause),
        "resume": with_login(signal.resume),
        "status": with_login(signal_status.status),
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `headwater`; ends the process with the command's exit code."""
    app(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="headwater")


if __name__ == "__main__":
    main()
