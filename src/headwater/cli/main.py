"""The command line. Commands live in files of their own and import what they need when they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headwater import __version__
from headwater.cli.command import with_common_flags, with_login
from headwater.cli.commands import bookmarks, rejects
from headwater.cli.commands.environment import connect, connector_template, postgres, signal
from headwater.cli.commands.environment.doctor import doctor
from headwater.cli.commands.environment.jars import jars
from headwater.cli.commands.environment.schema import schema
from headwater.cli.commands.environment.stack import stack
from headwater.cli.commands.label import label
from headwater.cli.commands.plan import check, plan
from headwater.cli.commands.rewind import rewind
from headwater.cli.commands.run import run
from headwater.cli.commands.sql import sql
from headwater.cli.commands.status import history, marks, status
from headwater.cli.commands.verify import verify
from headwater.cli.output import Output

_FIRST_STEPS = """\
Headwater keeps an Apache Iceberg lakehouse in step with operational systems.

  headwater demo                  a small shop, three cycles, a crash and its recovery: watch it work
  headwater plan orders.yaml      what the next cycle would read; changes nothing
  headwater run orders.yaml       read what is new and land it (--once: one cycle)
  headwater status                every pipeline's mark and last outcome
  headwater sql "SELECT …"        ask the lake
  headwater doctor                check the environment

All commands: headwater --help
"""

app = typer.Typer(
    name="headwater",
    help="Keeps an Apache Iceberg lakehouse in step with operational systems, and never checkpoints ahead of the "
    "data. Exits 0: done, 1: the run failed, 2: your input, 3: your environment.",
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
    """Show the first steps when no command is given."""
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

    A small shop in SQLite, three cycles into a local lake. The files stay for inspection.
    """
    from headwater.cli.commands.demo.demo import run_demo

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
    "Rejected rows: their payload, reason and replay.",
    {"list": rejects.list_rejects, "show": rejects.show, "replay": rejects.replay},
)
_add_group(
    "bookmarks",
    "The bookmarks of an objects source, one per object.",
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
        **{action.name: action.command for action in connect.ACTIONS},
        "delete": connect.delete,
        "plugins": connect.plugins,
        "validate": connect.validate,
    },
)
_add_group(
    "template",
    "Print connector files to start from.",
    {"postgres": connector_template.postgres, "s3": connector_template.s3},
    within=_connect,
)

_add_group(
    "postgres",
    "Check and prepare PostgreSQL servers for change capture, and show their slots.",
    {
        "check": with_login(postgres.check),
        "prepare": with_login(postgres.prepare),
        "status": postgres.status,
    },
)
_add_group(
    "signal",
    "Ask a running Debezium connector for snapshots.",
    {
        "init": with_login(signal.init),
        "snapshot": with_login(signal.snapshot),
        "stop": with_login(signal.stop),
        **{action.name: with_login(action.command) for action in signal.ACTIONS},
        "status": with_login(signal.status),
    },
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `headwater`; ends the process with the command's exit code."""
    app(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="headwater")


if __name__ == "__main__":
    main()
