"""Rows inside of messages: where each column's values lie, for many messages at once.

A tuple is its number of columns, and for each of them a letter: `t` a text with its length, `n` NULL, `u` a value in
TOAST that did not change and is not told. Texts stay where they are until Arrow gathers them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.model.errors import RunError
from headwater.sources.postgres.log.messages import read
from headwater.sources.sql.copy_binary import Numbers

TEXT, NULL, UNCHANGED = b"tnu"
_COUNT = 2  # bytes of the number of columns
_LENGTH = 5  # bytes of letter and length


@dataclass
class Cells:
    """One column's values in some rows."""

    begins: Numbers
    ends: Numbers
    letters: Numbers

    def take(self, rows: Numbers) -> Cells:
        return Cells(self.begins[rows], self.ends[rows], self.letters[rows])

    def put(self, rows: Numbers, others: Cells) -> None:
        self.begins[rows], self.ends[rows], self.letters[rows] = others.begins, others.ends, others.letters

    def clear(self, rows: Numbers) -> None:
        """Make them NULL."""
        self.ends[rows] = self.begins[rows]
        self.letters[rows] = NULL

    def filled_from(self, others: Cells) -> None:
        """A value that is not told is what it was before, where that is told."""
        rows = np.flatnonzero((self.letters == UNCHANGED) & (others.letters == TEXT))
        if len(rows):
            self.put(rows, others.take(rows))


def tuples_at(data: Numbers, at: Numbers, columns: int) -> tuple[list[Cells], Numbers]:
    """The columns of the tuples that begin at these places, and where the tuples end."""
    if (read(data, at, ">u2") != columns).any():
        raise RunError(f"the server's log holds a row that has not the {columns} columns of its table")
    found = []
    at = at + _COUNT
    for _ in range(columns):
        head = read(data, at, [("letter", "u1"), ("length", ">i4")])
        letters = head["letter"].copy()
        told = letters == TEXT
        if told.all():
            begins = at + _LENGTH
            ends = begins + head["length"]
        else:
            if not (told | (letters == NULL) | (letters == UNCHANGED)).all():
                raise RunError("the server's log holds a value of an unknown form")
            begins = at + np.where(told, _LENGTH, 1)
            ends = begins + np.where(told, head["length"], 0)
        found.append(Cells(begins, ends, letters))
        at = ends
    return found, at.copy()  # cells are written to


def texts(data: pa.Buffer, cells: Cells) -> pa.Array:
    """The values as bytes; NULL where there is none."""
    count = len(cells.begins)
    # Values and what lies between them, in turn: one array over the messages, of which Arrow takes every other.
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2], edges[1::2] = cells.begins, cells.ends
    edges[-1] = cells.ends.max(initial=0)
    spread = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), data])
    taken = spread.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))
    told = cells.letters == TEXT
    if told.all():
        return taken
    validity = pa.py_buffer(np.packbits(told, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, *taken.buffers()[1:]])
