"""What holds for every command: help, JSON, exit codes, no stack traces, documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from headwater.cli.command import with_common_flags
from headwater.cli.main import app
from headwater.cli.output import Output, display_width, printable, table
from headwater.cli.reference import leaves, pages
from headwater.model.errors import LeaseLost
from tests.support.command_line import Headwater

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
COMMANDS = [name for name, _ in leaves(get_command(app))]
OF_THE_DESIGN = "demo run plan check status history marks rewind label verify sql stack jars schema doctor rejects list rejects show rejects replay bookmarks list bookmarks show bookmarks count bookmarks remove bookmarks retry bookmarks export bookmarks import connect apply connect status connect restart connect pause connect resume connect stop connect delete connect plugins connect validate connect template postgres connect template s3 postgres check postgres prepare postgres status signal init signal snapshot signal stop signal pause signal resume signal status"


def test_the_commands_are_those_of_the_design() -> None:
    assert " ".join(COMMANDS) == OF_THE_DESIGN


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json_debug_and_a_help_that_fits_a_line(name: str, headwater: Headwater) -> None:
    *group, last = name.split()
    shown = headwater(*group, last, "--help")
    assert shown.code == 0
    assert "--json" in shown.out
    assert "--debug" in shown.out
    (listed,) = [line for line in headwater(*group, "--help").out.splitlines() if line.startswith(f"  {last} ")]
    assert not listed.endswith("...")


def test_without_arguments_six_commands_show_the_way(headwater: Headwater) -> None:
    shown = headwater()
    assert shown.code == 0
    assert [line.split()[1] for line in shown.out.splitlines() if line.startswith("  headwater")] == [
        "demo",
        "plan",
        "run",
        "status",
        "sql",
        "doctor",
    ]


def test_the_version_is_printed(headwater: Headwater) -> None:
    assert headwater("--version").out == "headwater 0.1.0\n"


def test_a_mistyped_command_or_flag_exits_2(headwater: Headwater) -> None:
    assert headwater("statsu").code == 2
    assert "status" in headwater("statsu").err
    assert headwater("status", "--jsno").code == 2
    assert headwater("rewind", "x").code == 2


@pytest.mark.parametrize("page", ["settings.md", "commands.md", "errors.md"])
def test_the_reference_says_what_the_code_says(page: str) -> None:
    assert (REFERENCE / page).read_text() == pages()[page], "run: python -m headwater.cli.reference"


def raising(error: Exception) -> typer.Typer:
    def fail(out: Output) -> None:
        """Fail."""
        out.say("working")
        raise error

    def other(out: Output) -> None:
        """Make typer treat `fail` as one command of several."""
        out.value({}, "")

    app = typer.Typer()
    app.command("fail")(with_common_flags(fail))
    app.command("other")(with_common_flags(other))
    return app


def test_an_error_of_ours_has_no_stack_trace_unless_asked_for() -> None:
    app = raising(LeaseLost("content: lost its lease", hint="nothing to do"))
    done = CliRunner().invoke(app, ["fail"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "working\nerror: content: lost its lease\n  → nothing to do\n"
    assert "Traceback" in CliRunner().invoke(app, ["fail", "--debug"]).stderr
    shown = json.loads(CliRunner().invoke(app, ["fail", "--json"]).stdout)
    assert shown == {"error": {"code": "lease-lost", "message": "content: lost its lease", "hint": "nothing to do"}}


def test_a_surprise_is_one_line_that_says_it_is_a_bug_and_keeps_secrets() -> None:
    app = raising(ZeroDivisionError("at postgresql://u:hunter2@h/db"))
    done = CliRunner().invoke(app, ["fail"])
    assert done.exit_code == 1
    assert "error: ZeroDivisionError: at postgresql://u:****@h/db" in done.stderr
    assert "bug in Headwater" in done.stderr
    assert "--debug" in done.stderr
    assert "Traceback" not in done.stderr
    debugged = CliRunner().invoke(app, ["fail", "--debug", "--json"])
    assert "Traceback" in debugged.stderr
    assert "hunter2" not in debugged.stderr + debugged.stdout


def test_ctrl_c_exits_130_without_a_trace() -> None:
    done = CliRunner().invoke(raising(KeyboardInterrupt()), ["fail"])  # type: ignore[arg-type]
    assert (done.exit_code, done.stderr) == (130, "working\n")


def test_tables_line_up_and_let_no_value_move_the_cursor() -> None:
    shown = table(("name", "rows"), [("日本", 1200), ("a\x1b[2J\n", 7)]).splitlines()
    assert shown == ["name         rows", "──────────  ─────", "日本        1,200", r"a\x1b[2J\n      7"]
    assert display_width("日本") == 4
    assert printable(None) == "–"
