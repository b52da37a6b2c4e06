"""Events that Debezium 3.6.1 really wrote about a MySQL 9.7 (see `record_mysql`): every type, every kind of change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sources.debezium.mysql_things import COLUMNS, MODES
from tests.sources.debezium.reading import Stream, messages_of, recorded_mysql, rows


def wanted(mode: str) -> dict[str, Any]:
    """The row of every type, as it is kept."""
    return {name: kind for name, _, _, kind in COLUMNS} | MODES[mode][1]


def tidied(row: dict) -> dict:
    """What MySQL's own JSON leaves open: whether a space stands behind a comma."""
    return row | {"js": row["js"] and row["js"].replace(" ", "")}


WITH_SCHEMAS = [mode for mode in MODES if mode != "without_schemas"]


@pytest.mark.parametrize("mode", WITH_SCHEMAS)
def test_every_value_is_mysqls_own(mode: str):
    decoded = Stream().poll(messages_of(recorded_mysql(mode)))
    decoded_rows = [row for row in decoded.rows.to_pylist() if row["i"] is not None]
    assert [(row["id"], row["_op"]) for row in decoded_rows] == [
        (1, "r"),
        (3, "c"),
        (4, "c"),
        (1, "u"),
        (3, "u"),
        (1, "r"),
        (3, "r"),
    ]
    for row in decoded_rows:
        expected = wanted(mode) | ({"s": 7} if row["s"] == 7 else {})
        assert {name: tidied(row)[name] for name in expected} == expected
        assert {name: type(row[name]) for name in expected} == {name: type(value) for name, value in expected.items()}
    assert [row["s"] for row in decoded_rows] == [-32768] * 3 + [7] * 4


@pytest.mark.parametrize("mode", WITH_SCHEMAS)
def test_a_row_of_nothing_but_its_key(mode: str):
    row = Stream().poll(messages_of(recorded_mysql(mode))).rows.to_pylist()[1]
    assert {name: value for name, value in row.items() if value is not None and name[0] != "_"} == {"id": 2}


def test_without_schemas_the_declared_types_are_kept():
    kinds = (
        "i int, b bigint, n decimal(12,3), v string, bin binary, day date, dt6 timestamp_ntz, at timestamp, e string"
    )
    stream = Stream(f"id int, {kinds}", key=["id"])
    row = stream.poll(messages_of(recorded_mysql("without_schemas"))).rows.to_pylist()[0]
    names = [kind.split()[0] for kind in kinds.split(", ")]
    assert {name: row[name] for name in names} == {name: wanted("without_schemas")[name] for name in names}


def test_what_happens_to_rows():
    decoded = rows(Stream().poll(messages_of(recorded_mysql("transactions"))))
    assert [(row["_op"], row["id"], row["s"], row["_old_key"]) for row in decoded] == [
        ("r", 1, -32768, None), ("r", 2, None, None),
        ("c", 3, -32768, None), ("c", 4, -32768, None), ("c", 5, None, None),
        ("u", 1, 7, None), ("u", 3, 7, None),
        ("d", 5, None, None), ("c", 50, None, "[5]"), ("d", 4, None, None),
        ("c", 6, 1, None), ("u", 6, 2, None), ("u", 6, 3, None),
        ("c", 7, 1, None), ("c", 8, 1, None), ("u", 7, 2, None), ("u", 7, 3, None), ("d", 8, None, None),
        ("u", 6, 4, None),
        ("r", 1, 7, None), ("r", 2, None, None), ("r", 3, 7, None), ("r", 6, 4, None), ("r", 7, 3, None), ("r", 50, None, None),
        ("t", None, None, None), ("c", 9, None, None),
    ]  # fmt: skip
    places = [row["_position"] for row in decoded]
    assert places == sorted(places)
    of_row = {(row["id"], row["_position"]) for row in decoded}
    assert len(of_row) == len(decoded)
    assert [row["extra"] for row in decoded if row["_op"] == "u"][-1] == 3  # a column that came later
    assert decoded[0]["_transaction"] is None
    assert decoded[2]["_transaction"] == decoded[3]["_transaction"] != decoded[4]["_transaction"]
    assert decoded[10]["_transaction"] == decoded[12]["_transaction"]


@pytest.mark.parametrize("mode", MODES)
def test_the_changes_of_a_compressed_transaction_are_in_order_or_set_aside(mode: str):
    """All stand at one place, and the delete of row 8 has a lower number there than its insert."""
    stream = Stream("id int, s int", key=["id"])
    decoded = stream.poll(messages_of(recorded_mysql(mode)))
    ours = [(row["id"], row["_op"]) for row in decoded.rows.to_pylist() if row["id"] in (7, 8)]
    if mode == "transactions":
        assert decoded.rejected == []
        assert ours == [(7, "c"), (8, "c"), (7, "u"), (7, "u"), (8, "d"), (7, "r")]
        return
    assert ours == [(7, "r")]
    assert len(decoded.rejected) == 5
    assert {reason.partition(", and nothing tells their order")[0] for _, reason in decoded.rejected} == {
        "source: several changes of the row stand at binlog.000001:11236"
    }
    assert all("set provide.transaction.metadata to true" in reason for _, reason in decoded.rejected)


@pytest.mark.parametrize("mode", ["defaults", "transactions"])
def test_what_a_connector_sends_again_is_neither_set_aside_nor_put_elsewhere(mode: str):
    events = recorded_mysql(mode)
    known = Stream()
    first = known.poll(messages_of(events))
    again = known.decode(messages_of([*events, *events[5:], *events[3:]]))
    places = {(row["id"], row["_op"], row["s"], row["_position"]) for row in first.rows.to_pylist()}
    assert {(row["id"], row["_op"], row["s"], row["_position"]) for row in again.rows.to_pylist()} == places
    assert len(again.rejected) == 3 * len(first.rejected)
