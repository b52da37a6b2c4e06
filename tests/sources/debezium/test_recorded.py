"""Events that Debezium 3.6.3 really wrote: every kind of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from headwater.model.rows import position
from tests.sources.debezium.reading import Stream, messages_of, recorded, rows

DDL = (
    "id bigint, customer string, amount decimal(12,2), ratio double, active boolean, day date, created timestamp, "
    "ts timestamp_ntz, payload string, tags array<string>, raw binary, uid string, big string, extra int"
)


def stream() -> Stream:
    return Stream(DDL, decimals="text")


def one(number: int) -> dict:
    events = [each for each in recorded() if each["file"].startswith(f"{number:02}_")]
    assert len(events) == 1
    return rows(stream().poll(messages_of(events)))[0]


def test_every_event_becomes_a_row_and_no_tombstone_does():
    events = recorded()
    decoded = stream().poll(messages_of(events))
    assert decoded.rejected == []
    wanted = [n for n, each in enumerate(events) if each["value"] is not None]
    assert decoded.message_indices.tolist() == wanted
    assert decoded.rows.column("_op").to_pylist() == [events[n]["value"]["op"] for n in wanted]
    assert len(wanted) == 28


def test_the_values_of_a_row_have_the_types_that_were_declared():
    row = one(3)
    assert {name: value for name, value in row.items() if not name.startswith("_")} == {
        "id": 4,
        "customer": "c4",
        "amount": Decimal("12.34"),
        "ratio": 0.5,
        "active": True,
        "day": dt.date(2026, 1, 2),
        "created": dt.datetime(2026, 11, 16, 2, 44, 3, 859914, dt.UTC),
        "ts": dt.datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001 - that is the point
        "payload": '{"a": 1}',
        "tags": ["x", "y"],
        "raw": b"\xde\xad\xbe\xef",
        "uid": "00000000-0000-0000-0000-000000000001",
        "big": "zzzzzzzzzz",
        "extra": None,
    }
    assert row["_source_time"] == dt.datetime(2026, 11, 16, 2, 44, 3, 860413, dt.UTC)
    assert row["_transaction"] == "760"


def test_positions_are_those_of_the_log():
    assert one(0)["_position"] == position(24099304, 2 * 24099304)  # an initial snapshot's read: no commit before
    assert one(3)["_position"] == position(24099344, 2 * 24099344 + 1)
    assert one(22)["_position"] == position(24110240, 2 * 24110512 + 1)  # the second row of a transaction
    assert one(13)["_position"] == position(24105920, 0)  # an incremental snapshot's read: it has no place of its own
    assert one(18)["_position"] == position(24109984, 2 * 24109984)  # a blocking snapshot's


def test_of_a_delete_only_the_key_is_filled():
    for number in (5, 7, 105):
        row = one(number)
        assert row["_op"] == "d"
        assert row["id"] is not None
        assert [name for name, value in row.items() if value is not None and not name.startswith("_")] == ["id"]


def test_an_insert_that_changes_the_key_tells_the_former_one():
    row = one(9)
    assert (row["id"], row["_old_key"]) == (30, "[3]")
    assert one(7)["id"] == 3
    assert one(3)["_old_key"] is None


def test_a_value_that_was_not_sent_is_named():
    row = one(104)
    assert (row["big"], row["_missing"]) == (None, ["big"])
    assert one(103)["_missing"] is None


def test_a_column_that_came_later_is_found_where_nobody_wrote_a_schema():
    events = recorded()
    first = [each for each in events if "newcol" not in each["file"]]
    known = Stream()
    known.look(messages_of(first))
    assert known.key == ("id",)
    assert {name: kind for name, (_, kind) in known.columns.items()} == {
        "id": "bigint", "customer": "string", "amount": "string", "ratio": "double", "active": "boolean",
        "day": "bigint", "created": "string", "ts": "bigint", "payload": "string", "tags": "string", "raw": "string",
        "uid": "string", "big": "string",
    }  # fmt: skip
    (row,) = rows(known.poll(messages_of([each for each in events if "newcol" in each["file"]])))
    assert list(known.columns)[-1] == "extra"
    assert row["extra"] == 7
    before = known.decode(messages_of(first))
    assert before.rejected == []
    assert set(before.rows.column("extra").to_pylist()) == {None}


@pytest.mark.parametrize("size", [1, 7, 31])
def test_how_a_log_is_cut_does_not_change_its_rows(size):
    events = recorded()
    known = Stream()
    known.look(messages_of(events))
    decoded = known.decode(messages_of(events)).rows.to_pylist()
    parts = [known.decode(messages_of(events[n : n + size])).rows.to_pylist() for n in range(0, len(events), size)]
    assert [row for part in parts for row in part] == decoded
