"""The first pipeline that Headwater was asked for: a notification table, polled by `seq`, shown on the console."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

HEADWATER = Path(sys.executable).with_name("headwater")


@pytest.fixture
def content(database, tmp_path):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA cms")
        connection.execute(
            """CREATE TABLE cms.content_notification_status (
                seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, content_id uuid DEFAULT gen_random_uuid(), state text)"""
        )
        connection.execute("INSERT INTO cms.content_notification_status (state) VALUES ('draft'), ('sent'), ('read')")
    (tmp_path / "headwater.yaml").write_text(f'progress: ["memory:", "{database}"]\n')
    (tmp_path / "content.yaml").write_text(f"""
pipeline: content
every: 5s
source:
  sql:
    url: {database}
    table: cms.content_notification_status
    cursor: seq
    start: -1
sinks:
  - console: {{}}
""")
    return tmp_path


def headwater(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Without a PATH there is no Java: whatever passes here has started none.
    environment = {"PATH": "", "HOME": str(folder)}
    return subprocess.run(
        [HEADWATER, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_only_what_is_new_is_shown_and_the_mark_can_be_queried(content, database):
    first = headwater(content, "run", "content.yaml", "--once")
    assert first.returncode == 0, first.stderr
    assert [state in first.stdout for state in ("draft", "sent", "read")] == [True] * 3
    assert "mark=none" in first.stderr
    assert "store=" in first.stderr

    idle = headwater(content, "run", "content.yaml", "--once", "--json")
    assert json.loads(idle.stdout)["outcome"] == "nothing new"

    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO cms.content_notification_status (state) VALUES ('archived')")
    second = headwater(content, "run", "content.yaml", "--once")
    assert "archived" in second.stdout
    assert "draft" not in second.stdout
    assert 'mark="seq = 3"' in second.stderr

    marks = json.loads(headwater(content, "marks", "content", "--json").stdout)
    assert marks["pipeline"] == "content"
    assert {name: marks["mark"][name] for name in ("kind", "column", "type", "value")} == {
        "kind": "column", "column": "seq", "type": "integer", "value": 4,
    }  # fmt: skip
    with psycopg.connect(database) as connection:
        (value,) = connection.execute(
            "SELECT mark ->> 'value' FROM headwater_progress WHERE pipeline = 'content'"
        ).fetchone()
    assert value == "4"


def test_a_store_that_does_not_answer_is_no_first_run(content, database):
    """W3: only a proven absence means 'start'."""
    assert headwater(content, "run", "content.yaml", "--once").returncode == 0
    (content / "headwater.yaml").write_text('progress: ["memory:", "postgresql://nobody@127.0.0.1:1/none"]\n')
    failed = headwater(content, "run", "content.yaml", "--once", "--json")
    assert failed.returncode == 3
    assert json.loads(failed.stdout)["error"]["code"] == "store-unreachable"
    assert "draft" not in failed.stdout
