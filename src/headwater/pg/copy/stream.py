"""A COPY from the bytes of a connection: chunks of whole rows, the frame of the binary format, the server's errors."""

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

_LOW_WATER = 1 << 20  # bytes that must arrive before the kernel wakes this process
PATIENCE_SECONDS = 0.004  # then it wakes this process for any number of bytes
FIELDS = 2  # bytes of a row's number of fields
END = b"\xff\xff"  # in place of another row
_TIMEVAL = struct.pack("ll", 0, round(PATIENCE_SECONDS * 1_000_000))
_SIGNATURE = b"PGCOPY\n\xff\r\n\x00"
_NUMBER = 4  # bytes of the flags, and of the length of the extension after them


class Chunk:
    """Some whole rows: where the first field of each begins, and where its last one ends."""

    def __init__(self, data: bytearray, starts: Numbers, ends: Numbers) -> None:
        self.data, self.starts, self.ends = data, starts, ends


class CopyRefused(Exception):
    """The server's own message. `sqlstate` is empty if the connection broke before the server sent one."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate

    @classmethod
    def of(cls, severity: str, message: str, sqlstate: str) -> CopyRefused:
        return cls(f"{severity}:  {message} ({sqlstate})", sqlstate)


def header_size(payload: bytes) -> int:
    """The bytes before the first row, in the first message of a COPY."""
    if not payload.startswith(_SIGNATURE):
        raise RunError(f"the server's COPY begins with {payload[:11]!r}, not as PostgreSQL's binary format does")
    extension = len(_SIGNATURE) + _NUMBER
    return extension + _NUMBER + int.from_bytes(payload[extension : extension + _NUMBER], "big")


def unexpected_row(fields: bytes, expected: bytes) -> RunError:
    return RunError(f"the server's COPY sent {fields.hex()} where a row of {expected.hex()} begins")


@contextlib.contextmanager
def wake_rarely(number: int) -> Iterator[socket.socket]:
    """The socket of this number for the block. A blocking read waits for many bytes, or a few milliseconds.

    The server sends 8 KB at a time. A wake-up for each of them costs both sides a third of their time.
    """
    with socket.socket(fileno=os.dup(number)) as wire:
        if sys.platform == "linux":
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, _LOW_WATER)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL)
        try:
            yield wire
        finally:
            if sys.platform == "linux":  # libpq uses this socket again, and waits for single bytes
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


# libpq returns a COPY row by row, with a malloc and a call for each, which triples the cost of a row. So libpq
# only opens the connection, with all it knows of passwords and services. Then this module speaks the protocol: one query,
# and messages until the server is ready again.

_HEAD = 5  # of a message: its letter, and its length without the letter
_DATA, _ERROR, _READY = b"dEZ"
_MAX_PASSES = 3  # a value may look like several rows
_D_ZERO = 0x0064  # the bytes `d` and zero, as one little-endian number


class Wire(Protocol):
    """A connection's bytes, decrypted."""

    def sendall(self, data: bytes) -> None: ...

    def recv_into(self, view: memoryview) -> int:
        """Receive some bytes; 0 at the end. Raises BlockingIOError if none arrives for a few milliseconds."""
        ...


def copy_chunks(wire: Wire, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The rows of a COPY. The next chunk overwrites its bytes."""
    text = query + b"\0"
    wire.sendall(b"Q" + (len(text) + 4).to_bytes(4, "big") + text)
    yield from _Copy(wire, fields, chunk_bytes).chunks()


def socket_chunks(connection: Connection, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The same from the socket of a plain connection."""
    with wake_rarely(connection.pgconn.socket) as wire:
        wire.settimeout(None)
        try:
            yield from copy_chunks(wire, query, fields, chunk_bytes)
        finally:
            os.set_blocking(wire.fileno(), False)  # as libpq, which owns the socket, left it


class _Copy:
    def __init__(self, wire: Wire, fields: int, chunk_bytes: int) -> None:
        self._wire, self._fields = wire, fields.to_bytes(FIELDS, "big")
        self._data = bytearray(chunk_bytes + PADDING)
        self._filled = 0
        self._error: CopyRefused | None = None

    def chunks(self) -> Iterator[Chunk]:
        ready = self._begin()
        while not ready:
            self._fill()
            starts, ends, used, ready = self._rows()
            if len(starts):
                yield Chunk(self._data, starts, ends)
            self._discard(used)
            if not (used or ready):
                self._receive()
        if self._error:
            raise self._error

    def _begin(self) -> bool:
        """Read up to the first row: COPY's data begins with a signature, and the row follows in the same message."""
        while True:
            end = self._message_end(0)
            if end > self._filled:
                self._receive()
                continue
            type_, payload = self._data[0], bytes(self._data[_HEAD:end])
            if type_ == _DATA:
                self._discard(self._after_signature(payload, end))
                return False
            if type_ == _ERROR:
                self._error = _refusal(payload)
            self._discard(end)
            if type_ == _READY:
                return True

    def _after_signature(self, payload: bytes, end: int) -> int:
        """Where the first row's message begins, after this method wrote a head for it."""
        begin = header_size(payload)
        self._data[begin : begin + _HEAD] = b"d" + (end - begin - 1).to_bytes(4, "big")
        return begin

    def _fill(self) -> None:
        """Receive until the chunk is full of whole rows or the server is ready."""
        while not self._ready() and (self._filled < len(self._data) - PADDING or self._message_end(0) > self._filled):
            self._receive()

    def _receive(self) -> None:
        """Receive some bytes; a row larger than the chunk makes it grow."""
        room = len(self._data) - PADDING
        if self._filled == room:
            self._data = self._data + bytes(room)  # a new object: arrays may still refer to the old one
            room *= 2
        size = None
        while size is None:
            with memoryview(self._data) as view, contextlib.suppress(BlockingIOError):  # nothing arrived in 4 ms
                size = self._wire.recv_into(view[self._filled : room])
        if not size:
            raise self._error or CopyRefused("the server closed the connection in the middle of a COPY")
        self._filled += size

    def _discard(self, used: int) -> None:
        self._data[: self._filled - used] = self._data[used : self._filled]
        self._filled -= used

    def _message_end(self, at: int) -> int:
        if at + _HEAD > self._filled:
            return self._filled + 1
        return at + 1 + int.from_bytes(self._data[at + 1 : at + _HEAD], "big")

    def _ready(self) -> bool:
        """ReadyForQuery is the last message, five bytes and a status; a false positive only makes a smaller chunk."""
        return self._data[max(self._filled - 6, 0) : self._filled - 1] == b"Z\0\0\0\5"

    def _rows(self) -> tuple[Numbers, Numbers, int, bool]:
        """First field and end of each whole row, how many bytes they took, and whether the server is ready."""
        data = np.frombuffer(self._data, np.uint8)
        starts, ends = row_chain(data, self._filled, self._fields)
        begins, used, ready = self._walk(int(ends[-1]) if len(ends) else 0)
        if begins:
            more = np.array(begins, np.int64)
            starts, ends = np.concatenate([starts, more]), np.concatenate([ends, _ends(more, _heads(data, more))])
        return starts + (_HEAD + FIELDS), ends, used, ready

    def _walk(self, at: int) -> tuple[list[int], int, bool]:
        """Message by message: the last rows, other messages, and rows after a break in the chain."""
        rows, ready = [], False
        while (end := self._message_end(at)) <= self._filled:
            type_, fields = self._data[at], self._data[at + _HEAD : min(at + _HEAD + FIELDS, end)]
            if type_ == _DATA and fields == self._fields:
                rows.append(at)
            elif type_ == _DATA and fields not in (END, b""):
                raise unexpected_row(bytes(fields), self._fields)
            elif type_ == _ERROR:
                self._error = _refusal(bytes(self._data[at + _HEAD : end]))
            ready = ready or type_ == _READY
            at = end
        return rows, at, ready


def row_chain(data: Numbers, filled: int, fields: bytes) -> tuple[Numbers, Numbers]:
    """Begin and end of the rows at the front of the first `filled` bytes, by array operations.

    Whatever looks like the head of a row (`d`, a length below 16 MB, the number of fields) is a candidate, and
    counts if the row before ends exactly there. Values can look like heads, too, in every row of a table; where a
    few passes cannot tell them apart, the chain ends early.
    """
    front = data[:filled]
    even, odd = (2 * np.flatnonzero(_pairs(front, odd) == _D_ZERO) + odd for odd in (0, 1))
    begins = np.sort(np.concatenate([even, odd]), kind="stable")  # a merge of two sorted arrays
    begins = begins[: np.searchsorted(begins, filled - _HEAD - FIELDS)]
    heads = _heads(data, begins)
    row_like = heads["fields"] == int.from_bytes(fields, "little")
    if not row_like.all():
        begins, heads = begins[row_like], heads[row_like]
    if not len(begins) or begins[0] != 0:
        return begins[:0], begins[:0]
    ends = _ends(begins, heads)
    gaps = np.flatnonzero(begins[1:] != ends[:-1])
    for _ in range(_MAX_PASSES):
        if not len(gaps):
            break
        is_end = np.zeros(filled + 1, bool)
        is_end[0] = is_end[ends[ends <= filled]] = True
        after_row = is_end[begins]  # a value that looks like a row does not begin where a row ends
        begins, ends = begins[after_row], ends[after_row]
        gaps = np.flatnonzero(begins[1:] != ends[:-1])
    count = int(gaps[0]) + 1 if len(gaps) else len(begins)
    if ends[count - 1] > filled:
        count -= 1
    return begins[:count], ends[:count]


def _pairs(data: Numbers, odd: int) -> Numbers:
    count = (len(data) - odd) // 2
    return np.frombuffer(data.data, "<u2", count, odd)


def _heads(data: Numbers, at: Numbers) -> Numbers:
    return windows(data, at, [("type", "u1"), ("length", ">i4"), ("fields", "<u2")])


def _ends(begins: Numbers, heads: Numbers) -> Numbers:
    return begins + 1 + heads["length"].astype(np.int64)


def _refusal(fields: bytes) -> CopyRefused:
    """The error of an ErrorResponse: a letter and a text for each field."""
    texts = {field[:1]: field[1:].decode(errors="replace") for field in fields.split(b"\0") if field}
    return CopyRefused.of(texts.get(b"S", "ERROR"), texts.get(b"M", "unknown"), texts.get(b"C", ""))
