"""G11: a secret in an address appears in no output of any command, whatever goes wrong."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.support.command_line import Headwater

SECRET = "hunter2-s3cret"  # noqa: S105 - the one that must not show

PIPELINE = """\
pipeline: secret
source:
  sql: {url: "${SOURCE_URL}", table: items, cursor: id}
sinks:
  - console: {format: json}
"""

COMMANDS = (
    ("check", "secret.yaml"),
    ("check", "secret.yaml", "--connect"),
    ("plan", "secret.yaml"),
    ("run", "secret.yaml", "--once"),
    ("run", "secret.yaml", "--once"),
    ("status",),
    ("history", "secret"),
    ("marks", "secret"),
    ("marks", "secrets"),
    ("rewind", "secret", "--to", "start", "--why", "test", "--yes"),
    ("rewind", "secret", "--to", "nonsense", "--why", "test", "--yes"),
    ("doctor",),
    ("schema",),
    ("jars",),
)


def with_password(url: str) -> str:
    return url.replace("postgres@", f"postgres:{SECRET}@")


def outputs(headwater: Headwater) -> list[tuple[str, str]]:
    shown = []
    for command in COMMANDS:
        for extra in ((), ("--json",), ("--debug",)):
            done = headwater(*command, *extra)
            shown.append((" ".join((*command, *extra)), done.out + done.err))
    return shown


@pytest.fixture
def folder(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, name text)")
        connection.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
    (tmp_path / "secret.yaml").write_text(PIPELINE)
    (tmp_path / "headwater.yaml").write_text('progress: ["memory:", "${STORE_URL}"]\n')
    monkeypatch.setenv("SOURCE_URL", with_password(database))
    monkeypatch.setenv("STORE_URL", with_password(database))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_no_command_shows_a_secret_when_all_is_well(headwater: Headwater) -> None:
    shown = outputs(headwater)
    assert any("2 rows landed" in text for _, text in shown)
    assert [command for command, text in shown if SECRET in text] == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("variable", ["SOURCE_URL", "STORE_URL"])
def test_no_command_shows_a_secret_when_something_is_away(
    headwater: Headwater, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"postgresql://postgres:{SECRET}@127.0.0.1:1/gone")
    shown = outputs(headwater)
    assert [command for command, text in shown if SECRET in text] == []


@pytest.mark.parametrize("url", [f"postgresql://u:{SECRET}@[bad", f"nosuch://u:{SECRET}@h/x"])
def test_no_command_shows_a_secret_in_an_address_that_makes_no_sense(
    headwater: Headwater, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SOURCE_URL", url)
    monkeypatch.setenv("STORE_URL", url)
    shown = outputs(headwater)
    assert [command for command, text in shown if SECRET in text] == []
    assert (folder / "secret.yaml").exists()
