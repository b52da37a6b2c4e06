"""`headwater run`, and what can be asked about it afterwards."""

from __future__ import annotations

import ctypes
import datetime as dt
import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.cli.commands.run import bound_text, exit_code
from headwater.cli.event_log import LineLog, Pace, event_line
from headwater.engine.result import CycleResult
from headwater.model.errors import RunError, SourceUnreachable
from headwater.model.position.marks import ColumnMark, Mark, ObjectsMark, OffsetsMark, StreamsMark
from headwater.model.types import CursorType
from tests.support.command_line import ORDERS, Headwater, Shop
from tests.support.wait import wait_until

MARK = {"kind": "column", "column": "id", "type": "integer"}


def test_a_first_run_lands_everything_and_a_second_finds_nothing_new(headwater: Headwater, shop: Shop) -> None:
    done = headwater("run", shop.file, "--once")
    assert done.code == 0
    assert '"item": "pear"' in done.out.replace('":"', '": "')
    assert "orders: 2 rows landed in " in done.out
    assert "cycle begins" in done.err
    again = headwater("run", shop.file, "--once")
    assert (again.code, again.out) == (0, "orders: nothing new\n")


def test_the_mark_and_its_store_are_told_at_the_start_of_every_cycle(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    (begins,) = [line for line in headwater("run", shop.file, "--once").err.splitlines() if "cycle begins" in line]
    assert 'mark="id = 2"' in begins  # W4
    assert "store=sqlite:///" in begins


def test_json_is_one_object_a_cycle_and_nothing_else_on_stdout(headwater: Headwater, shop: Shop) -> None:
    done = headwater("run", shop.file, "--once", "--json")
    cycle = done.json
    assert cycle["pipeline"] == "orders"
    assert cycle["outcome"] == "landed"
    assert cycle["rows"] == {"read": 2, "landed": 2, "rejected": 0}
    assert [sink["sink"] for sink in cycle["sinks"]] == ["1:console"]
    assert cycle["window"] == {"start": None, "end": {**MARK, "value": 2}}
    assert "pear" in done.err, "what the console sink prints goes beside the data"
    assert headwater("run", shop.file, "--once", "--json").json["outcome"] == "nothing new"


def test_marks_have_the_promised_shape(headwater: Headwater, shop: Shop) -> None:
    before = headwater("marks", "orders", "--json").json
    assert (before["mark"], before["epoch"]) == (None, 0)
    headwater("run", shop.file, "--once")
    after = headwater("marks", "orders", "--json").json
    assert set(after) == {"pipeline", "store", "epoch", "mark"}
    assert (after["pipeline"], after["mark"]) == ("orders", {**MARK, "value": 2})
    assert after["store"].startswith("sqlite:///")
    assert "orders: id = 2" in headwater("marks", "orders").out


def test_status_and_history_tell_what_happened(headwater: Headwater, shop: Shop) -> None:
    assert "no pipelines in" in headwater("status").out
    headwater("run", shop.file, "--once")
    (line,) = headwater("status", "--json").json["pipelines"]
    assert (line["pipeline"], line["mark"]["value"], line["last"]["kind"]) == ("orders", 2, "landed")
    assert "orders" in headwater("status").out
    (entry,) = headwater("history", "orders", "--json").json["history"]
    assert (entry["rows"], entry["end"]) == (2, "id = 2")
    assert "id = 2" in headwater("history", "orders").out


def test_a_plan_shows_the_window_and_changes_nothing(headwater: Headwater, shop: Shop) -> None:
    for _ in range(2):
        planned = headwater("plan", shop.file, "--json").json
        assert planned["mark"] is None
        assert planned["window"]["end"] == {**MARK, "value": 2}
        assert planned["streams"][0]["stream"].endswith("orders")
    assert "window: up to id = 2" in headwater("plan", shop.file).out
    headwater("run", shop.file, "--once")
    assert "nothing new" in headwater("plan", shop.file).out


def test_a_name_that_nobody_knows_suggests_the_closest(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    for command in ("marks", "history"):
        done = headwater(command, "ordes")
        assert done.code == 2
        assert "no pipeline 'ordes'" in done.err
        assert "did you mean 'orders'?" in done.err
    done = headwater("rewind", "ordes", "--to", "start", "--why", "test", "--yes")
    assert (done.code, "did you mean 'orders'?" in done.err) == (2, True)


def test_a_rewind_needs_a_yes_moves_the_mark_and_is_on_record(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    refused = headwater("rewind", "orders", "--to", "1", "--why", "bad rows")
    assert (refused.code, "pass --yes" in refused.err) == (2, True)
    assert headwater("marks", "orders", "--json").json["mark"]["value"] == 2
    done = headwater("rewind", "orders", "--to", "1", "--why", "bad rows", "--yes", "--json")
    assert (done.json["from"]["value"], done.json["mark"]["value"]) == (2, 1)
    assert "the mark is id = 2 and moves to 1" in done.err
    newest = headwater("history", "orders", "--json").json["history"][0]
    assert (newest["kind"], newest["why"]) == ("rewound", "bad rows")
    assert newest["who"]
    assert headwater("run", shop.file, "--once", "--json").json["rows"]["read"] == 1


def test_a_rewind_to_nonsense_or_without_a_reason_changes_nothing(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    done = headwater("rewind", "orders", "--to", "yesterday", "--why", "test", "--yes", "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "bad-position")
    assert headwater("rewind", "orders", "--to", "1", "--why", " ", "--yes").code == 2
    assert headwater("marks", "orders", "--json").json["mark"]["value"] == 2


def test_a_rewind_finds_its_file_by_name_though_another_is_broken(headwater: Headwater, shop: Shop) -> None:
    (shop.folder / "broken.yaml").write_text("pipelin: x")
    done = headwater("rewind", "orders", "--to", "start", "--why", "test", "--yes")
    assert done.code == 0
    done = headwater("rewind", "x", "--to", "start", "--why", "test", "--yes")
    assert (done.code, "broken.yaml:1:1" in done.err) == (2, True)


def test_a_source_that_is_gone_exits_3_and_says_what_to_do(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once")
    (shop.folder / "shop.db").unlink()
    done = headwater("run", shop.file, "--once", "--json")
    assert (done.code, done.json["outcome"], done.json["error"]["code"]) == (3, "failed", "source-unreachable")
    assert done.json["error"]["hint"]
    assert headwater("marks", "orders", "--json").json["mark"]["value"] == 2


def test_one_of_two_pipelines_fails_and_the_other_lands(headwater: Headwater, shop: Shop) -> None:
    (shop.folder / "gone.yaml").write_text(ORDERS.replace("shop.db", "gone.db").replace("orders\n", "gone\n", 1))
    done = headwater("run", ".", "--once", "--json")
    outcomes = {cycle["pipeline"]: cycle["outcome"] for cycle in map(json.loads, done.out.splitlines())}
    assert outcomes == {"gone": "failed", "orders": "landed"}
    assert done.code == 3


def test_exit_codes_of_failures_that_differ_are_1() -> None:
    failed = [
        CycleResult("a", "1", "failed", error=RunError("x")),
        CycleResult("b", "2", "failed", error=SourceUnreachable("y")),
    ]
    assert [exit_code(failed), exit_code(failed[1:]), exit_code([])] == [1, 3, 0]


def test_flags_choose_the_store(headwater: Headwater, shop: Shop) -> None:
    headwater("run", shop.file, "--once", "--progress", "sqlite:///other.db")
    assert (shop.folder / "other.db").exists()
    assert headwater("marks", "orders", "--json").json["mark"] is None
    assert headwater("marks", "orders", "--set", "progress=sqlite:///other.db", "--json").json["mark"]["value"] == 2


def test_streams_and_codes_hold_in_a_process_of_its_own(process: Headwater, shop: Shop) -> None:
    done = process("run", shop.file, "--once", "--json")
    assert (done.code, done.json["outcome"]) == (0, "landed")
    assert all(line[:4].isdigit() for line in done.err.splitlines() if "cycle begins" in line)
    began = time.monotonic()
    idle = process("run", shop.file, "--once", "--json")
    sys.stdout.write(f"\nidle run --once: {time.monotonic() - began:.2f} s\n")
    assert idle.json["outcome"] == "nothing new"
    assert process("check", "nowhere.yaml").code == 2
    assert process("marks", "orders", "--progress", "postgresql://127.0.0.1:1/x").code == 3


def test_a_reader_that_has_enough_ends_the_command_quietly(shop: Shop) -> None:
    command = f"{sys.executable} -m headwater.cli.main schema | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=shop.folder, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("receiver", [min, max], ids=["to the main thread", "to another thread"])
def test_a_scheduled_run_picks_up_new_rows_and_stops_on_a_signal(shop: Shop, number: int, receiver) -> None:
    """The system may hand a signal to any thread, but only the main thread, which waits, runs Python's handler."""
    shop.file.write_text(ORDERS + "every: 200ms\n")
    command = [sys.executable, "-m", "headwater.cli.main", "run", "orders.yaml", "--json"]
    out = shop.folder / "out"
    with out.open("wb") as stdout, (shop.folder / "err").open("wb") as stderr:
        running = subprocess.Popen(command, cwd=shop.folder, stdout=stdout, stderr=stderr)
    try:
        wait_until(lambda: "landed" in out.read_text())
        shop.sell("plum")
        wait_until(lambda: out.read_text().count('"landed"') >= 2 and out.read_text().count("nothing new") >= 1)
        thread = receiver(int(task.name) for task in Path(f"/proc/{running.pid}/task").iterdir())
        assert ctypes.CDLL(None).tgkill(running.pid, thread, number) == 0
        assert running.wait(timeout=20) == 0
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in (shop.folder / "err").read_text()


@pytest.mark.slow
def test_a_second_signal_abandons_the_cycle_and_the_next_run_finishes_it(process: Headwater, shop: Shop) -> None:
    command = [sys.executable, "-m", "headwater.cli.main", "run", "orders.yaml", "--once"]
    environment = {**os.environ, "HEADWATER_FAULT": "land.written:stop"}
    running = subprocess.Popen(command, cwd=shop.folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        os.waitid(os.P_PID, running.pid, os.WSTOPPED)
        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGTERM)
        running.send_signal(signal.SIGCONT)
        _, talk = running.communicate(timeout=20)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 128 + signal.SIGTERM
    assert "abandoned; the next run finishes the window" in talk
    wait_until(lambda: process("run", shop.file, "--once").code == 0, seconds=60)  # the lease has to expire first
    assert process("marks", "orders", "--json").json["mark"]["value"] == 2


def test_a_terminal_gets_a_display_and_stdout_stays_clean(shop: Shop) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "headwater.cli.main", "run", "orders.yaml", "--once", "--json"]
    running = subprocess.Popen(command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=child)
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    out, _ = running.communicate(timeout=60)
    assert json.loads(out).get("outcome") == "landed", out
    assert b"cycle begins" in shown


def test_the_log_quotes_and_masks_its_fields() -> None:
    line = event_line("a", "failed", {"message": "at postgresql://u:hunter2@h/db\nx", "rows": 3})
    assert line == r'a failed message="at postgresql://u:****@h/db\nx" rows=3'


def test_the_pace_tells_rows_rate_and_time_left_as_far_as_they_are_known() -> None:
    pace = Pace("seq ≤ 9", 4000)
    assert pace.text == "of 4,000 rows"
    pace.add(500, 10.0)
    assert pace.text == "500 of 4,000 rows"
    pace.add(1000, 12.0)
    assert pace.text == "1,500 of 4,000 rows · 500 rows/s · 5 s left"
    pace.add(3000, 14.0)
    assert pace.text == "4,500 rows · 1,000 rows/s", "there were more than expected"
    unknown = Pace("", None)
    assert unknown.text == ""
    unknown.add(1, 1.0)
    unknown.add(4, 2.0)
    assert unknown.text == "5 rows · 4 rows/s"


def test_the_pace_counts_anew_for_every_stream_and_sink() -> None:
    pace = Pace("", 100)
    pace.add(60, 1.0)
    pace.landed(60)
    assert pace.text == "of 40 rows", "the other stream"
    pace.add(40, 2.0)
    pace.landed(40)
    assert pace.text == "of 100 rows", "the next sink"


def test_a_pipe_gets_a_line_every_ten_seconds_while_rows_land() -> None:
    err, now = io.StringIO(), [0.0]
    log = LineLog(err, lambda: now[0])
    log.event("content", "window", window="seq ≤ 9", rows=1000)
    for second in range(1, 26):
        now[0] = float(second)
        log.rows("content", 20)
    log.event("content", "landed", rows=500)
    lines = [line.split(" ", 2)[2] for line in err.getvalue().splitlines()]
    assert lines == [
        'window window="seq ≤ 9" rows=1000',
        "landing rows=200 of=1000 rows_per_second=20 seconds_left=40",
        "landing rows=400 of=1000 rows_per_second=20 seconds_left=30",
        "landed rows=500",
    ]


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (ColumnMark("id", CursorType.INTEGER, 3), "id ≤ 3"),
        (
            ColumnMark("at", CursorType.TIMESTAMPTZ, dt.datetime(2026, 3, 2, 12, 20, tzinfo=dt.UTC)),
            "at ≤ 2026-03-02 12:20:00Z",
        ),
        (
            ColumnMark("at", CursorType.TIMESTAMP, dt.datetime(2026, 3, 2, 12, 20, 0, 5)),  # noqa: DTZ001 - without a zone on purpose
            "at ≤ 2026-03-02 12:20:00.000005",
        ),
        (StreamsMark({"b": ColumnMark("n", CursorType.INTEGER, 1)}), "b: n ≤ 1"),
        (ObjectsMark(2, 1), "generation 2, 1 object"),
        (OffsetsMark({"orders": {0: 1, 1: 4}}), "orders 0: 1, 1: 4"),
    ],
)
def test_a_result_says_how_far_the_window_goes(mark: Mark, text: str) -> None:
    assert bound_text(mark) == text
