"""Signals as Debezium reads them, and what the signal table tells about snapshots. No server."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest

from headwater.model.errors import InputError
from headwater.pg.catalog import Table
from headwater.services.signals import signal_table
from headwater.services.signals.notifications import parse, snapshot_reports
from headwater.services.signals.snapshots import signal_progress

ORDERS = Table(1, "public", "orders", "table", key=("id",))
NOW = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)


def test_an_id_is_unique_and_says_when():
    first, second = signal_table.new_id(NOW), signal_table.new_id(NOW)
    assert first != second
    assert first.startswith("headwater-20260302T093000Z-")
    assert len(first) <= 42
    assert signal_table.written_at(first) == NOW
    assert signal_table.written_at("ad-hoc-1") is None


def test_a_filter_is_a_condition_for_incremental_and_a_query_for_blocking_snapshots():
    incremental = signal_table.snapshot("i", [ORDERS], "incremental", {1: "state = 'DE'"})
    assert json.loads(incremental.data) == {
        "type": "incremental",
        "data-collections": ["public.orders"],
        "additional-conditions": [{"data-collection": "public.orders", "filter": "state = 'DE'"}],
    }
    blocking = signal_table.snapshot("i", [ORDERS], "blocking", {1: "state = 'DE'"})
    (condition,) = json.loads(blocking.data)["additional-conditions"]
    assert condition["filter"] == """SELECT * FROM "public"."orders" WHERE state = 'DE'"""
    assert "additional-conditions" not in json.loads(signal_table.snapshot("i", [ORDERS], "blocking", {}).data)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("orders", "public.orders"),
        ("Bestellungen_ä", "public.Bestellungen_ä"),
        ("a-b", "public.a-b"),
        ("a$b", r"public\.a\$b"),
        ("a(b", r"public\.a\(b"),
        ("odd name", "public.odd name"),
        ("a.b", r"public\.a\.b"),
        ("[x]", r"public\.\[x\]"),
    ],
)
def test_names_are_said_so_that_they_match_only_themselves(name, said):
    assert signal_table.collection(Table(1, "public", name, "table")) == said
    assert re.fullmatch(said, f"public.{name}")


@pytest.mark.parametrize("name", ["odd name", "a.b", "it's", 'a"b', "[a]", "a\tb"])
def test_names_that_debezium_cannot_read_back_are_refused_for_incremental_snapshots(name):
    table = Table(1, "public", name, "table", key=("id",))
    with pytest.raises(InputError, match="break the connector for good"):
        signal_table.snapshot("i", [table], "incremental", {})
    quoted = name.replace('"', '""')
    (condition,) = json.loads(signal_table.snapshot("i", [table], "blocking", {1: "true"}).data)[
        "additional-conditions"
    ]
    assert condition["data-collection"] == f'"public"."{quoted}"'


def test_a_name_that_cannot_stand_in_a_filter_is_refused():
    with pytest.raises(InputError, match="in a filter"):
        signal_table.snapshot("i", [Table(1, "public", "a''b", "table")], "blocking", {1: "true"})


def test_filters_of_tables_that_differ_in_case_only_are_refused():
    other = Table(2, "public", "Orders", "table")
    with pytest.raises(InputError, match=r"public\.orders and public\.Orders"):
        signal_table.snapshot("i", [ORDERS, other], "incremental", {1: "true"})
    signal_table.snapshot("i", [ORDERS, other], "incremental", {})


def test_a_stop_without_tables_is_about_all():
    assert json.loads(signal_table.stop("i", []).data) == {"type": "incremental"}
    assert json.loads(signal_table.stop("i", ["public.orders"]).data)["data-collections"] == ["public.orders"]


def opened(chunk: str, **more: str) -> tuple[str, str, str]:
    return f"{chunk}-open", "snapshot-window-open", json.dumps({"openWindowTimestamp": "2026-03-02T09:30:00Z", **more})


def closed(chunk: str) -> tuple[str, str, str]:
    return f"{chunk}-close", "snapshot-window-close", json.dumps({"closeWindowTimestamp": "2026-03-02T09:30:01Z"})


def asked(signal_id: str, **data: object) -> tuple[str, str, str]:
    return signal_id, "execute-snapshot", json.dumps({"data-collections": ["public.orders"], **data})


def test_watermarks_tell_how_far_an_incremental_snapshot_is():
    rows = [asked("a")]
    assert signal_progress(rows)[0].progress == "no chunk yet"
    rows.append(opened("c1"))
    assert signal_progress(rows)[0].progress == "reading chunk 1"
    rows.append(closed("c1"))
    assert signal_progress(rows)[0].progress == "1 chunk read"
    rows += [opened("c2"), closed("c2"), asked("b"), opened("c3")]
    first, second = signal_progress(rows)
    assert (first.progress, first.last_seen) == ("2 chunks read", "2026-03-02T09:30:01Z")
    assert (second.progress, second.last_seen) == ("reading chunk 1", "2026-03-02T09:30:00Z")


def test_a_watermark_that_names_its_signal_counts_for_that():
    rows = [asked("a"), asked("b"), opened("c1", correlationId="a"), closed("c1")]
    assert [one.progress for one in signal_progress(rows)] == ["1 chunk read", "no chunk yet"]


def test_signals_of_others_are_shown_whatever_they_hold():
    rows = [
        ("1", "log", '{"message": "hello"}'),
        ("2", "execute-snapshot", "not json"),
        ("3", "pause-snapshot", None),
        asked("4", type="BLOCKING"),
        opened("c0"),
        ("5", "execute-snapshot", "[1]"),
    ]
    progress = signal_progress(rows)
    assert [(one.id, one.kind, one.progress) for one in progress] == [
        ("1", "", ""),
        ("2", "", "its data is not JSON: Debezium ignores it"),
        ("3", "", ""),
        ("4", "blocking", ""),
        ("5", "", "its data is not JSON: Debezium ignores it"),
    ]


def notified(kind: str, *, id: str = "a", schema: bool = False, **data: str) -> bytes:  # noqa: A002
    payload = {
        "id": id,
        "aggregate_type": "Incremental Snapshot",
        "type": kind,
        "additional_data": {"connector_name": "shop", **data},
        "timestamp": 1695817046353,
    }
    return json.dumps({"schema": {}, "payload": payload} if schema else payload).encode()


def test_notifications_tell_state_current_table_and_rows():
    messages = [
        notified("STARTED", schema=True),
        notified("IN_PROGRESS", current_collection_in_progress="public.orders"),
        notified("IN_PROGRESS", current_collection_in_progress="public.orders"),
    ]
    said = snapshot_reports([one for value in messages if (one := parse(value))])["a"]
    assert (said.state, said.current, said.chunks) == ("IN_PROGRESS", "public.orders", 2)
    messages += [
        notified(
            "TABLE_SCAN_COMPLETED", scanned_collection="public.orders", total_rows_scanned="7", status="SUCCEEDED"
        ),
        notified(
            "TABLE_SCAN_COMPLETED", scanned_collection="public.log", total_rows_scanned="0", status="NO_PRIMARY_KEY"
        ),
        notified("COMPLETED"),
    ]
    said = snapshot_reports([one for value in messages if (one := parse(value))])["a"]
    assert (said.state, said.current) == ("COMPLETED", None)
    assert said.scanned == {"public.orders": "7 rows", "public.log": "NO_PRIMARY_KEY"}


def test_a_snapshot_that_was_stopped_whole_is_aborted_though_debezium_says_completed_first():
    messages = [
        notified("STARTED"),
        notified("COMPLETED"),
        notified("ABORTED", id="random", data_collections="public.orders"),
    ]
    said = snapshot_reports([one for value in messages if (one := parse(value))])
    assert list(said) == ["a"]
    assert (said["a"].state, said["a"].scanned) == ("ABORTED", {"public.orders": "stopped"})


def test_a_snapshot_of_which_one_table_was_stopped_goes_on():
    messages = [
        notified("STARTED"),
        notified("ABORTED", data_collections="public.orders"),
        notified("IN_PROGRESS", current_collection_in_progress="public.other"),
        notified("COMPLETED"),
    ]
    said = snapshot_reports([one for value in messages if (one := parse(value))])["a"]
    assert (said.state, said.scanned) == ("COMPLETED", {"public.orders": "stopped"})


@pytest.mark.parametrize("value", [b"", b"\x00\x01", b"[]", b'"x"', b'{"type": 1}', b'{"payload": null}'])
def test_messages_that_are_no_notifications_are_passed_over(value):
    assert parse(value) is None
