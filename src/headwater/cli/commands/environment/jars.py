"""`headwater jars`: the JVM libraries in the cache."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from headwater.cli.command import Yes, confirm
from headwater.cli.output import Output, table
from headwater.model.errors import JarsMissing


class Action(enum.StrEnum):
    """What to do with the libraries."""

    show = "show"
    fetch = "fetch"
    verify = "verify"
    remove = "remove"


class Which(enum.StrEnum):
    """The sets of services/jars.py, which other commands must not pay for."""

    spark = "spark"
    s3a = "s3a"
    broker = "broker"
    connect = "connect"
    debezium = "debezium"


def jars(
    out: Output,
    action: Annotated[
        Action,
        typer.Argument(
            metavar="[show|fetch|verify|remove]",
            help="show: list them. fetch: download missing ones. verify: check sums. remove: delete them.",
        ),
    ] = Action.show,
    *,
    which: Annotated[
        Which,
        typer.Option(
            "--set",
            metavar="spark|s3a|broker|connect|debezium",
            help="Which libraries: Spark's, those for Spark's own S3 reader, or a server's of `headwater stack`.",
        ),
    ] = Which.spark,
    yes: Yes = False,
) -> None:
    """Show, fetch, verify or remove the JVM libraries.

    A run fetches them once; use this to prepare a machine beforehand, and for repairs.
    """
    from headwater.services.jars import JarSet, cache_folder, ensure_jars, inspect, remove

    jar_set = JarSet(which.value)
    folder = cache_folder(jar_set)
    if action is Action.fetch:
        ensure_jars(out.say, jar_set)
    if action is Action.remove:
        out.say(f"removes {folder}")
        confirm(out, "remove", yes=yes)
        remove(folder)
    states = inspect(folder, jar_set, checksums=action is Action.verify)
    sizes = [jar.path.stat().st_size if jar.path.exists() else 0 for jar in states]
    data = [
        {"jar": jar.name, "state": jar.state, "bytes": size, "path": str(jar.path)}
        for jar, size in zip(states, sizes, strict=True)
    ]
    rows = [(jar.name, jar.state, f"{size / 1e6:.1f} MB") for jar, size in zip(states, sizes, strict=True)]
    out.value({"folder": str(folder), "jars": data}, f"{table(('jar', 'state', 'size'), rows)}\nin {folder}")
    broken = [jar.name for jar in states if jar.state != "present"]
    if broken and action is not Action.remove:
        verb = "is" if len(broken) == 1 else "are"
        raise JarsMissing(f"{', '.join(broken)} {verb} missing or damaged", hint=f"run: {jar_set.repair}")
