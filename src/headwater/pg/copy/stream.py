"""A COPY straight from a connection's bytes: chunks of whole rows, the frame of the binary format, refusals."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from headwater.model.errors import RunError
from headwater.pg.connection import Connection
from headwater.pg.copy.binary import PADDING, Numbers, windows

_LOW_WATER = 1 << 20  # bytes that must have arrived before this process is woken
PATIENCE_SECONDS = 0.004  # what has arrived by then is taken, however little
FIELDS = 2  # bytes of a row's number of fields
END = b"\xff\xff"  # stands where another row would begin
_TIMEVAL = struct.pack("ll", 0, round(PATIENCE_SECONDS * 1_000_000))
_SIGNATURE = b"PGCOPY\n\xff\r\n\x00"
_NUMBER = 4  # bytes of the flags, and of the length of the extension behind them


class Chunk:
    """Some whole rows: where the first field of each begins, and where its last one ends."""

    def __init__(self, data: bytearray, starts: Numbers, ends: Numbers) -> None:
        self.data, self.starts, self.ends = data, starts, ends


class CopyRefused(Exception):
    """The server's own words for what went wrong. `sqlstate` is empty where it could say nothing any more."""

    def __init__(self, words: str, sqlstate: str = "") -> None:
        super().__init__(words)
        self.sqlstate = sqlstate

    @classmethod
    def of(cls, severity: str, message: str, sqlstate: str) -> CopyRefused:
        return cls(f"{severity}:  {message} ({sqlstate})", sqlstate)


def after_header(payload: bytes) -> int:
    """Where the first row begins in the first message of a COPY."""
    if not payload.startswith(_SIGNATURE):
        raise RunError(f"the server's COPY begins with {payload[:11]!r}, not as PostgreSQL's binary format does")
    extension = len(_SIGNATURE) + _NUMBER
    return extension + _NUMBER + int.from_bytes(payload[extension : extension + _NUMBER], "big")


def other_row(fields: bytes, expected: bytes) -> RunError:
    return RunError(f"the server's COPY sent {fields.hex()} where a row of {expected.hex()} begins")


@contextlib.contextmanager
def woken_rarely(number: int) -> Iterator[socket.socket]:
    """The socket of this number for the block. A reader that blocks waits until much has come, or for a moment.

    The server sends 8 KB at a time. To be woken for each of them costs both sides a third of their time.
    """
    with socket.socket(fileno=os.dup(number)) as wire:
        if sys.platform == "linux":
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _LOW_WATER)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
        try:
            yield wire
        finally:
            if sys.platform == "linux":  # libpq continues with this socket, and waits for single bytes
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


# libpq hands out a COPY row by row, a malloc and a call for each; that costs twice as much as all else that is done to
# receive a row. So libpq makes the connection, with all it knows of passwords and services, and then this module alone
# speaks on it: one query, and messages of the protocol until the server is ready again.

_HEAD = 5  # of a message: its letter, and its length without the letter
_DATA, _ERROR, _READY = b"dEZ"
_SIEVES = 3  # a value may even hold something that looks like several rows
_D_ZERO = 0x0064  # the bytes `d` and zero, as one little-endian number


class Wire(Protocol):
    """The two ends of a connection, in clear."""

    def sendall(self, data: bytes) -> None: ...

    def recv_into(self, view: memoryview) -> int:
        """Some bytes that have arrived; 0: no more will. Raises BlockingIOError when none comes for a moment."""
        ...


def copy_chunks(wire: Wire, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The rows of a COPY. A chunk's bytes are overwritten when the next one is asked for."""
    text = query + b"\0"
    wire.sendall(b"Q" + (len(text) + 4).to_bytes(4, "big") + text)
    yield from _Copy(wire, fields, chunk_bytes).chunks()


def socket_chunks(connection: Connection, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The same from the socket of a plain connection."""
    with woken_rarely(connection.pgconn.socket) as wire:
        wire.settimeout(None)
        try:
            yield from copy_chunks(wire, query, fields, chunk_bytes)
        finally:
            os.set_blocking(wire.fileno(), False)  # as libpq left it, whose socket this is, too


class _Copy:
    def __init__(self, wire: Wire, fields: int, chunk_bytes: int) -> None:
        self._wire, self._fields = wire, fields.to_bytes(FIELDS, "big")
        self._data = bytearray(chunk_bytes + PADDING)
        self._filled = 0
        self._refused: CopyRefused | None = None

    def chunks(self) -> Iterator[Chunk]:
        ready = self._begin()
        while not ready:
            self._fill()
            starts, ends, used, ready = self._rows()
            if len(starts):
                yield Chunk(self._data, starts, ends)
            self._forget(used)
            if not (used or ready):
                self._receive()
        if self._refused:
            raise self._refused

    def _begin(self) -> bool:
        """Read up to the first row: COPY's data begins with a signature, and the row follows in the same message."""
        while True:
            end = self._message_end(0)
            if end > self._filled:
                self._receive()
                continue
            kind, payload = self._data[0], bytes(self._data[_HEAD:end])
            if kind == _DATA:
                self._forget(self._after_signature(payload, end))
                return False
            if kind == _ERROR:
                self._refused = _refusal(payload)
            self._forget(end)
            if kind == _READY:
                return True

    def _after_signature(self, payload: bytes, end: int) -> int:
        """Where the first row's message begins, which is given a head of its own."""
        begin = after_header(payload)
        self._data[begin : begin + _HEAD] = b"d" + (end - begin - 1).to_bytes(4, "big")
        return begin

    def _fill(self) -> None:
        """Until the chunk is full of whole rows or the server has said all."""
        while not self._ready() and (self._filled < len(self._data) - PADDING or self._message_end(0) > self._filled):
            self._receive()

    def _receive(self) -> None:
        """What has arrived; a row larger than the chunk makes it grow."""
        room = len(self._data) - PADDING
        if self._filled == room:
            self._data = self._data + bytes(room)  # a new one: arrays may still look at the old
            room *= 2
        got = None
        while got is None:
            with memoryview(self._data) as view, contextlib.suppress(BlockingIOError):  # nothing came in 4 ms
                got = self._wire.recv_into(view[self._filled : room])
        if not got:
            raise self._refused or CopyRefused("the server closed the connection in the middle of a COPY")
        self._filled += got

    def _forget(self, used: int) -> None:
        self._data[: self._filled - used] = self._data[used : self._filled]
        self._filled -= used

    def _message_end(self, at: int) -> int:
        if at + _HEAD > self._filled:
            return self._filled + 1
        return at + 1 + int.from_bytes(self._data[at + 1 : at + _HEAD], "big")

    def _ready(self) -> bool:
        """ReadyForQuery is the last message, five bytes and a status; a false alarm only means a smaller chunk."""
        return self._data[max(self._filled - 6, 0) : self._filled - 1] == b"Z\0\0\0\5"

    def _rows(self) -> tuple[Numbers, Numbers, int, bool]:
        """First field and end of each whole row, how many bytes are done with, and whether the server is ready."""
        data = np.frombuffer(self._data, np.uint8)
        starts, ends = self._regular(data)
        others, used, ready = self._walk(int(ends[-1]) if len(ends) else 0)
        if others:
            more = np.array(others, np.int64)
            starts, ends = np.concatenate([starts, more]), np.concatenate([ends, _ends(more, _heads(data, more))])
        return starts + (_HEAD + FIELDS), ends, used, ready

    def _regular(self, data: Numbers) -> tuple[Numbers, Numbers]:
        """The unbroken chain of rows at the front, found at once.

        Each place that looks like the head of a row (`d`, a length below 16 MB, the number of fields) is taken for
        one, and counts if the row before ends exactly there. Values may look so, too, in every row of a table; where
        that cannot distinguish them from rows at once, the chain ends here.
        """
        filled = data[: self._filled]
        even, odd = (2 * np.flatnonzero(_pairs(filled, odd) == _D_ZERO) + odd for odd in (0, 1))
        found = np.sort(np.concatenate([even, odd]), kind="stable")  # which merges what is sorted already
        found = found[: np.searchsorted(found, self._filled - _HEAD - FIELDS)]
        heads = _heads(data, found)
        right = heads["fields"] == int.from_bytes(self._fields, "little")
        if not right.all():
            found, heads = found[right], heads[right]
        if not len(found) or found[0] != 0:
            return found[:0], found[:0]
        ends = _ends(found, heads)
        broken = np.flatnonzero(found[1:] != ends[:-1])
        for _ in range(_SIEVES):
            if not len(broken):
                break
            ended = np.zeros(self._filled + 1, bool)
            ended[0] = ended[ends[ends <= self._filled]] = True
            begun = ended[found]  # a value that looks like a row begins where no row ends
            found, ends = found[begun], ends[begun]
            broken = np.flatnonzero(found[1:] != ends[:-1])
        count = int(broken[0]) + 1 if len(broken) else len(found)
        if ends[count - 1] > self._filled:
            count -= 1
        return found[:count], ends[:count]

    def _walk(self, at: int) -> tuple[list[int], int, bool]:
        """Message by message: the last rows, what else there is, and rows behind a break in the chain."""
        rows, ready = [], False
        while (end := self._message_end(at)) <= self._filled:
            kind, fields = self._data[at], self._data[at + _HEAD : min(at + _HEAD + FIELDS, end)]
            if kind == _DATA and fields == self._fields:
                rows.append(at)
            elif kind == _DATA and fields not in (END, b""):
                raise other_row(bytes(fields), self._fields)
            elif kind == _ERROR:
                self._refused = _refusal(bytes(self._data[at + _HEAD : end]))
            ready = ready or kind == _READY
            at = end
        return rows, at, ready


def _pairs(data: Numbers, odd: int) -> Numbers:
    count = (len(data) - odd) // 2
    return np.frombuffer(data.data, "<u2", count, odd)


def _heads(data: Numbers, at: Numbers) -> Numbers:
    return windows(data, at, [("kind", "u1"), ("length", ">i4"), ("fields", "<u2")])


def _ends(begins: Numbers, heads: Numbers) -> Numbers:
    return begins + 1 + heads["length"].astype(np.int64)


def _refusal(fields: bytes) -> CopyRefused:
    """Of an error's fields, as the protocol sends them: a letter and a text for each."""
    said = {field[:1]: field[1:].decode(errors="replace") for field in fields.split(b"\0") if field}
    return CopyRefused.of(said.get(b"S", "ERROR"), said.get(b"M", "unknown"), said.get(b"C", ""))
