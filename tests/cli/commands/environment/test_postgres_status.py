"""`headwater postgres status` against a real server, and what `headwater label` refuses."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.model.position.lsn import lsn_number
from headwater.model.position.marks import LsnMark
from headwater.model.position.stream_state import TableState
from headwater.model.secret import Secret
from headwater.pg.connection import PostgresSession
from headwater.progress.sqlite import SqliteProgress
from headwater.sources.postgres.guard.slot import create_slot, drop_slot
from headwater.sources.postgres.guard.state import read_state
from tests.support.command_line import Headwater, Shop

Standing = Callable[..., LsnMark]


@pytest.fixture
def slot(database: str, tmp_path: Path) -> Iterator[str]:
    """The name of a slot that a pipeline file asks for; not made yet."""
    name = f"status_{uuid.uuid4().hex[:8]}"
    (tmp_path / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
    (tmp_path / "shop.yaml").write_text(f"""
pipeline: shop
source:
  postgres: {{url: "{database}", tables: [public.orders], slot: {name}}}
sinks:
  - iceberg: {{table: "lake.shop.{{stream}}", mode: merge}}
""")
    yield name
    session = PostgresSession(Secret(database))
    drop_slot(session, name)
    session.close()


@pytest.fixture
def standing(database: str, slot: str, tmp_path: Path) -> Standing:
    """Makes the slot, and stores a mark at its place."""

    def mark(**tables: TableState) -> LsnMark:
        session = PostgresSession(Secret(database))
        lsn = create_slot(session, slot)
        server = read_state(session, slot).server
        session.close()
        mark = LsnMark(lsn, server.cluster, server.timeline, slot, streams=tables)
        store = SqliteProgress(tmp_path / "progress.db")
        lease = store.acquire("shop", "test", 60)
        stored = store.load("shop")
        store.swap(lease, stored, stored.advanced(mark), None)
        store.release(lease)
        store.close()
        return mark

    return mark


def test_a_healthy_slot_is_shown_and_exits_0(headwater: Headwater, standing: Standing, slot: str):
    mark = standing(
        a=TableState(1, 5), b=TableState(2, 5, copied_to=7), c=TableState(3, 5, stale="a column came"),
        d=TableState(4, 5, landed=6),
    )  # fmt: skip
    shown = headwater("postgres", "status", "shop.yaml")
    assert shown.code == 0, shown
    assert shown.out.startswith("shop: healthy\n")
    assert f"slot                {slot}: reserved, has no reader now" in shown.out
    (data,) = headwater("postgres", "status", "--json").json["pipelines"]
    assert data["healthy"] is True
    assert data["slot"]["wal_status"] == "reserved"
    assert data["slot"]["budget_bytes"] == 10_000_000_000
    assert lsn_number(data["slot"]["confirmed_flush_lsn"]) == lsn_number(data["mark"]) == mark.lsn
    assert data["behind_bytes"] >= 0
    assert [one["state"] for one in data["tables"]] == ["copied", "being copied", "stale", "catching up"]
    assert headwater("postgres", "status", "shop").code == 0


def test_before_the_first_run_there_is_nothing_to_complain_about(headwater: Headwater, slot: str):
    shown = headwater("postgres", "status")
    assert shown.code == 0
    assert f"{slot}: does not exist" in shown.out


def test_a_slot_that_is_gone_needs_attention_and_says_the_command(
    headwater: Headwater, standing: Standing, database: str, slot: str
):
    standing()
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    shown = headwater("postgres", "status", "shop.yaml")
    assert shown.code == 1
    assert "headwater rewind shop --to snapshot" in shown.out
    (data,) = headwater("postgres", "status", "shop.yaml", "--json").json["pipelines"]
    assert data["slot"] is None
    assert data["error"]["code"] == "source-changed"


@pytest.mark.usefixtures("slot")
def test_a_server_that_does_not_answer_needs_attention(headwater: Headwater, tmp_path: Path):
    file = tmp_path / "shop.yaml"
    url = "postgresql://postgres:hunter2-s3cret@127.0.0.1:1/none"
    file.write_text(re.sub(r'url: "[^"]+"', f'url: "{url}"', file.read_text()))
    shown = headwater("postgres", "status", "shop.yaml", "--json")
    assert shown.code == 1
    assert shown.json["pipelines"][0]["error"]["code"] == "source-unreachable"
    assert "hunter2" not in shown.out + shown.err


def test_pipelines_of_other_kinds_have_no_slot(headwater: Headwater, shop: Shop):
    shown = headwater("postgres", "status", shop.file)
    assert shown.code == 2
    assert "postgres source" in shown.err
    assert headwater("postgres", "status", "nobody").code == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [("main", "cannot be a label"), ("a b", "cannot be a label"), ("ok", "no WAL to write a label to")],
)
def test_only_a_source_with_a_log_takes_labels(headwater: Headwater, shop: Shop, text: str, says: str):
    shown = headwater("label", "orders", text, "--no-wait")
    assert shown.code == 2
    assert says in shown.err


@pytest.mark.usefixtures("slot")
def test_a_label_that_nobody_would_find_is_not_written(headwater: Headwater):
    shown = headwater("label", "shop", "month-end")
    assert shown.code == 2
    assert "run it once first" in shown.err
    assert headwater("label", "shop", "month-end", "--timeout", "soon").code == 2
