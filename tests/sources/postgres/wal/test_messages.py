"""Messages as a server sent them, byte for byte; and messages that no server should send."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.model.errors import RunError
from headwater.pg.copy.binary import PADDING
from headwater.sources.postgres.catalog import Commit, Layout, WalColumn
from headwater.sources.postgres.wal import messages as wire
from headwater.sources.postgres.wal.decoder import changed_rows, concat_rows, copy_rows
from headwater.sources.postgres.wal.transactions import Messages, Transactions, WalMessage

# PostgreSQL 18.6; the last one came with an origin.
LOG = [
    bytes.fromhex(text)
    for text in (
        "42000000000edee9f800030374e22d1ba900002a12",
        "59000040127075626c6963006361706d6f6f6400",
        "52000040157075626c696300636170006400030169640000000017ffffffff00760000000019ffffffff006d0000004012ffffffff",
        "49000040154e00037400000001317400000002c3a9740000000161",
        "55000040154e00037400000001316e740000000161",
        "55000040154b00037400000001316e6e4e00037400000001326e740000000161",
        "44000040154b00037400000001326e6e",
        "55000040154e000374000000013375740000000161",
        "520000401d7075626c69630063617032006400010069640000000017ffffffff",
        "540000000202000040150000401d",
        "4d01000000000edee9f8686561647761746572000000000d7b226c6162656c223a2278227d",
        "4300000000000edee9f8000000000edeeba000030374e22d1ba9",
        "42000000000edeeed800030374e22d260d00002a14",
        "52000040157075626c696300636170006600030169640000000017ffffffff01760000000019ffffffff016d0000004012ffffffff",
        "49000040154e000374000000013474000000016f6e",
        "55000040154f000374000000013474000000016f6e4e00037400000001347400000001706e",
        "44000040154f00037400000001347400000001706e",
        "4300000000000edeeed8000000000edeef0800030374e22d260d",
        "4d00000000000edeef4868656164776174657200000000036e6f77",
        "42000000000edeef880002ea470ae8600000002a15",
        "4f0000000000000abc656c7365776865726500",
        "490000401d4e0001740000000131",
        "4300000000000edeef88000000000edeefd00002ea470ae86000",
    )
]
FIRST = Commit(0xEDEE9F8, 0xEDEEBA0, 0x2A12, 0x30374E22D1BA9 + 946_684_800_000_000)
SECOND = Commit(0xEDEEED8, 0xEDEEF08, 0x2A14, 0x30374E22D260D + 946_684_800_000_000)
THIRD = Commit(0xEDEEF88, 0xEDEEFD0, 0x2A15, 0x2EA470AE86000 + 946_684_800_000_000)
LAYOUT = Layout(
    0x4015, "public", "cap", "d",
    (WalColumn("id", 23, -1, True), WalColumn("v", 25, -1, False), WalColumn("m", 0x4012, -1, False)),  # noqa: FBT003
)  # fmt: skip


def chunk(messages: list[bytes]) -> Messages:
    ends = np.cumsum([len(one) for one in messages])
    starts = ends - np.array([len(one) for one in messages], np.int64)
    return Messages(np.frombuffer(b"".join(messages) + bytes(PADDING), np.uint8), starts, ends)


def followed(chunks: list[list[bytes]], after: int = 0, upto: int | None = None, stop=lambda _: False) -> tuple:
    """Transactions after these chunks, and of every message that was wanted its place."""
    transactions = Transactions(after, upto, stop)
    placed = []
    for part in chunks:
        got = transactions.follow(chunk(part))
        columns = (got.letters, got.lsns, got.times, got.transactions, got.numbers)
        placed += [tuple(int(column[row]) for column in columns) for row in range(len(got.letters))]
        if transactions.ended:
            break
    return transactions, placed


def test_a_relation_is_a_layout():
    assert wire.layout(LOG[2]) == LAYOUT
    full = wire.layout(LOG[13])
    assert (full.identity, [column.in_identity for column in full.columns]) == ("f", [True] * 3)


def test_a_truncate_names_its_tables_and_a_note_its_words():
    assert wire.truncated_oids(LOG[9]) == (0x4015, 0x401D)
    assert wire.note(LOG[10]) == ("headwater", b'{"label":"x"}')


def test_transactions_are_followed_from_begin_to_commit():
    transactions, placed = followed([LOG])
    assert (transactions.first, transactions.last, transactions.count, transactions.messages) == (
        FIRST,
        THIRD,
        3,
        len(LOG),
    )
    assert transactions.notes == [WalMessage(FIRST, "headwater", b'{"label":"x"}')]
    numbers = {
        (chr(letter), number) for letter, lsn, *_, number in placed if lsn == FIRST.lsn and chr(letter) in "IUDT"
    }
    assert numbers == {("I", 1), ("U", 2), ("U", 3), ("D", 4), ("U", 5), ("T", 6)}
    transactions.finish()


@pytest.mark.parametrize("size", range(1, len(LOG)))
def test_it_does_not_matter_where_chunks_end(size):
    parts = [LOG[begin : begin + size] for begin in range(0, len(LOG), size)]
    transactions, placed = followed(parts)
    expected, expected_places = followed([LOG])
    names = ("first", "last", "last_known", "first_new", "count", "messages", "notes")
    assert {name: getattr(transactions, name) for name in names} == {name: getattr(expected, name) for name in names}
    assert placed == expected_places


@pytest.mark.parametrize("size", [1, 2, 5, len(LOG)])
@pytest.mark.parametrize(
    ("after", "known", "new", "notes"),
    [(0, None, FIRST, 1), (FIRST.lsn, None, FIRST, 1), (FIRST.end, FIRST, SECOND, 0), (SECOND.end, SECOND, THIRD, 0),
     (THIRD.end, THIRD, None, 0)],
)  # fmt: skip
def test_what_ends_at_the_mark_or_before_is_known(size, after, known, new, notes):
    transactions, _ = followed([LOG[begin : begin + size] for begin in range(0, len(LOG), size)], after)
    assert (transactions.first, transactions.last_known, transactions.first_new, len(transactions.notes)) == (
        FIRST,
        known,
        new,
        notes,
    )


@pytest.mark.parametrize("size", [1, 2, 5, 11, 12, 13, len(LOG)])
def test_a_note_to_stop_at_ends_everything_behind_its_transaction(size):
    notes = []
    parts = [LOG[begin : begin + size] for begin in range(0, len(LOG), size)]
    transactions, placed = followed(parts, stop=lambda note: bool(notes.append(note) or True))
    assert (transactions.last, transactions.count, transactions.messages, len(placed)) == (FIRST, 1, 12, 12)
    assert (transactions.ended, [note.content for note in notes]) == (True, [b'{"label":"x"}'])
    transactions.finish()
    known, _ = followed(parts, FIRST.end, stop=lambda _: True)
    assert (known.last, known.ended) == (THIRD, False)


@pytest.mark.parametrize(
    ("upto", "count"), [(FIRST.lsn, 0), (FIRST.end, 1), (SECOND.lsn, 1), (THIRD.lsn, 2), (THIRD.end, 3)]
)
@pytest.mark.parametrize("size", [1, 5, len(LOG)])
def test_transactions_behind_a_place_are_not_read(upto, count, size):
    transactions, _ = followed([LOG[begin : begin + size] for begin in range(0, len(LOG), size)], upto=upto)
    assert (transactions.count, transactions.ended) == (count, count < 3)
    transactions.finish()


def test_rows_say_what_was_and_what_is():
    transactions = Transactions(0, None, lambda _: False)
    placed = transactions.follow(chunk(LOG))
    rows = changed_rows(concat_rows([copy_rows(placed, np.array([3, 4, 5, 6, 7]))]), LAYOUT, ("id",))
    assert bytes(rows.ops) == b"cudcdu"
    assert [column.to_pylist() for column in rows.texts] == [
        [b"1", b"1", b"1", b"2", b"2", b"3"],
        ["é".encode(), None, None, None, None, None],
        [b"a", b"a", None, b"a", None, b"a"],
    ]
    assert bytes(rows.columns[1].letters) == b"tnnnnu"
    assert (rows.sources.tolist(), rows.moved.tolist()) == ([0, 1, 2, 2, 3, 4], [3])


def test_a_log_that_breaks_off_inside_a_transaction_is_refused():
    transactions, _ = followed([LOG[:8]])
    with pytest.raises(RunError, match="broke off inside the transaction at 0/EDEE9F8"):
        transactions.finish()


@pytest.mark.parametrize(
    "messages",
    [LOG[3:12], LOG[:8] + LOG[12:], [*LOG[:11], LOG[17]], [LOG[0], LOG[11], LOG[11]]],
    ids=["no begin", "no commit", "another commit", "two commits"],
)
def test_transactions_that_do_not_end_as_they_began_are_refused(messages):
    with pytest.raises(RunError, match="does not end as it began"):
        followed([messages])


def test_a_message_of_an_unknown_kind_is_refused():
    with pytest.raises(RunError, match="unknown type 'S'"):
        followed([[*LOG[:3], b"S" + bytes(20)]])


@pytest.mark.parametrize(
    "row",
    [LOG[3] + b"x", LOG[3].replace(b"\0\3t", b"\0\4t"), LOG[3].replace(b"\0\3t", b"\0\3b"), LOG[3].replace(b"N", b"K"), LOG[4][:-1],
     LOG[5].replace(b"N", b"X")],
    ids=["too long", "too many columns", "a binary value", "an insert of a key", "too short", "no new row"],
)  # fmt: skip
def test_rows_of_another_shape_are_refused(row):
    transactions = Transactions(0, None, lambda _: False)
    placed = transactions.follow(chunk([LOG[0], row]))
    with pytest.raises(RunError, match="the WAL holds"):
        changed_rows(concat_rows([copy_rows(placed, np.array([1]))]), LAYOUT, ("id",))
