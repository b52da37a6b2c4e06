"""`headwater verify` as users meet it: what it prints, how it exits, what it refuses. docs/how-to/verify.md runs it whole."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.cli.commands.verify import is_right, report_json, report_text
from headwater.engine.verify.digest import KEY, Differences
from headwater.engine.verify.report import ComparedTable, RepairedTable, SkippedTable, VerifyReport
from headwater.model.position.marks import ColumnMark
from headwater.model.types import CursorType
from tests.support.command_line import Headwater, Shop


def keys(*ids: int) -> pa.Table:
    hashes = {name: pa.array(ids, pa.uint64()) for name in KEY}
    return pa.table({"id": pa.array(ids, pa.int64()), **hashes})


def verified(missing=(), different=(), extra=(), *, follows_deletes: bool = False) -> VerifyReport:
    table = ComparedTable(
        sink="1:iceberg",
        stream="orders",
        table="lake.shop.orders",
        snapshot=17,
        key=("id",),
        ranges=16,
        differing=1,
        source_rows=1000,
        table_rows=1001,
        waiting=3,
        rejected=2,
        differences=Differences(keys(*missing), keys(*different), keys(*extra)),
        follows_deletes=follows_deletes,
        is_bag=False,
        seconds=1.5,
    )
    mark = ColumnMark("id", CursorType.INTEGER, 9)
    return VerifyReport("orders", mark, (table,), (SkippedTable("2:iceberg", "orders", "mode replace: no"),), 2.0)


def repaired(report: VerifyReport, *, landed: int = 0, removed: int = 0, left: int = 0) -> VerifyReport:
    return replace(report, repaired=(RepairedTable("1:iceberg", "orders", landed, removed, left),), was_repaired=True)


def text(report: VerifyReport, *, keep_extra: bool = False) -> str:
    return report_text(report, 3, keep_extra=keep_extra)


def test_what_was_left_out_is_said():
    shown = text(verified()).splitlines()
    assert shown[0] == "orders: compared at id = 9"
    assert shown[-1] == "equal, in 2.0 s"
    assert "  3 rows of orders not compared: no window has read them yet" in shown
    assert "  2 rows of orders are rejected" in shown
    assert "not compared: orders in 2:iceberg: mode replace: no" in shown


def test_differences_show_keys_alone():
    report = verified(missing=range(1, 8), extra=[900])
    assert "  missing (id): 1, 2, 3, …\n" in text(report)
    assert "  extra (id): 900\n" in text(report)
    assert text(report).endswith("different, in 2.0 s")
    data = json.loads(json.dumps(report_json(report, 2, keep_extra=False)))
    assert data["equal"] is False
    assert data["repaired"] is None
    assert data["tables"][0]["missing"] == 7
    assert data["tables"][0]["examples"] == {"missing": [{"id": 1}, {"id": 2}], "different": [], "extra": [{"id": 900}]}
    assert data["mark"] == {"kind": "column", "column": "id", "type": "integer", "value": 9}


def test_extra_rows_are_a_difference_unless_they_are_kept_or_removed():
    report = verified(extra=[900])
    assert not is_right(report, keep_extra=False)
    assert is_right(report, keep_extra=True)
    assert not is_right(repaired(report), keep_extra=False)  # it stayed
    assert is_right(repaired(report, removed=1), keep_extra=False)
    assert is_right(repaired(verified(extra=[900], follows_deletes=True), landed=1), keep_extra=False)


def test_a_repair_is_right_when_nothing_is_left():
    report = verified(missing=[4], different=[5])
    assert not is_right(report, keep_extra=True)
    done = repaired(report, landed=2)
    assert is_right(done, keep_extra=False)
    assert text(done).splitlines()[-2:] == [
        "repaired orders in 1:iceberg: 2 rows landed, 0 removed",
        "repaired, in 2.0 s",
    ]
    partly = repaired(report, landed=1, left=1)
    assert not is_right(partly, keep_extra=False)
    assert "1 not found in the source" in text(partly)


@pytest.mark.parametrize(
    "flags", [["--delete-extra"], ["--repair", "--delete-extra", "--keep-extra"], ["--wait", "soon"], ["--ranges", "0"]]
)
def test_flags_that_make_no_sense_exit_2(shop: Shop, headwater: Headwater, flags):
    assert headwater("verify", "orders", *flags).code == 2


def test_a_pipeline_without_a_table_exits_2(shop: Shop, headwater: Headwater):
    shown = headwater("verify", "orders")
    assert shown.code == 2
    assert "there is no Iceberg sink" in shown.err
