"""The one reader of COPY: rows of a query in PostgreSQL's binary format, a chunk at a time, over a socket, OpenSSL or libpq."""

from __future__ import annotations

import ctypes
import errno
import functools
import select
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import psycopg
from psycopg import pq

from headwater.model.secret import Secret
from headwater.pg.connection import BEGIN, Connection, connect, session_sql
from headwater.pg.copy.binary import PADDING, Numbers, windows
from headwater.pg.copy.stream import (
    END,
    FIELDS,
    PATIENCE_SECONDS,
    Chunk,
    CopyRefused,
    copy_chunks,
    header_size,
    socket_chunks,
    unexpected_row,
    wake_rarely,
)

# libpq opens the connection and checks the server's certificate; then it lends its session (`PQsslStruct`). This module
# calls the same OpenSSL as libpq, through psycopg's compiled module, which is linked with both.

_WANT_READ, _WANT_WRITE = 2, 3  # SSL_get_error, of a call that moved no bytes
_FUNCTIONS = {
    "PQsslStruct": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]),
    "SSL_read": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]),
    "SSL_write": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]),
    "SSL_get_error": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int]),
    "ERR_clear_error": (None, []),
}


def has_session(connection: Connection) -> bool:
    """True if libpq lends an OpenSSL session: not for Kerberos, nor with psycopg in pure Python."""
    library = _library()
    return library is not None and _session(library, connection.pgconn) is not None


def tls_chunks(connection: Connection, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The rows of a COPY. The next chunk overwrites its bytes."""
    with wake_rarely(connection.pgconn.socket):
        yield from copy_chunks(_Session(connection.pgconn), query, fields, chunk_bytes)


class _Session:
    """The session as a wire. Its socket does not block; the methods wait for it."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        library = _library()
        session = _session(library, pgconn) if library else None
        if library is None or session is None:
            raise OSError(errno.ENOTCONN, "libpq lends no OpenSSL session")
        self._library, self._session = library, session
        self._pgconn = pgconn  # it owns the session
        self._read, self._clear = library.SSL_read, library.ERR_clear_error

    def sendall(self, data: bytes) -> None:
        while True:
            self._clear()
            sent = self._library.SSL_write(self._open_session(), data, len(data))
            if sent > 0:  # all of it: libpq allows no less
                return
            if not self._wait(sent, seconds=None):
                raise OSError(errno.EPIPE, "the server closed the connection")

    def recv_into(self, view: memoryview) -> int:
        """As many records as have arrived and fit. Raises BlockingIOError if none arrives for a few milliseconds."""
        session, room, size = self._open_session(), len(view), 0
        begin = ctypes.addressof(ctypes.c_char.from_buffer(view))
        while size < room:
            self._clear()
            count = self._read(session, begin + size, room - size)
            if count <= 0:
                if size:
                    return size
                if not self._wait(count, PATIENCE_SECONDS):
                    return 0
                raise BlockingIOError
            size += count
        return size

    def _open_session(self) -> int:
        if self._pgconn.status != pq.ConnStatus.OK:  # libpq freed the session
            raise OSError(errno.ENOTCONN, "the connection is closed")
        return self._session

    def _wait(self, outcome: int, seconds: float | None) -> bool:
        """Wait until the session can continue, or for so long. False: the server ended it."""
        reason = self._library.SSL_get_error(self._session, outcome)
        if reason not in (_WANT_READ, _WANT_WRITE):
            return False
        ready = select.poll()
        ready.register(self._pgconn.socket, select.POLLIN if reason == _WANT_READ else select.POLLOUT)
        ready.poll(None if seconds is None else seconds * 1000)
        return True


@functools.cache
def _library() -> ctypes.CDLL | None:
    """OpenSSL of libpq; None: psycopg is pure Python, or without OpenSSL."""
    try:
        library = ctypes.CDLL(sys.modules[pq.PGconn.__module__].__file__)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


def _session(library: ctypes.CDLL, pgconn: pq.abc.PGconn) -> int | None:
    # psycopg documents the pointer for calls like this one, but its types do not know it.
    session: int | None = library.PQsslStruct(pgconn.pgconn_ptr, b"OpenSSL")  # type: ignore[attr-defined]
    return session


# The libpq path. Each row costs a call. It goes into the chunk's buffer at once, so that no row stays an object and
# Python's garbage collector has nothing to trace.

_NO_ROW, _NO_WAIT = 0, 1  # libpq's answer when no whole row has arrived, and its flag not to wait
_MAX_EMPTY_READS = 8  # before a pause: a row of up to 64 KB takes as many records of 8 KB
_ANSWER_MILLISECONDS = 100  # between two checks for the server's answer; its arrival ends the pause


def libpq_chunks(connection: Connection, query: bytes, fields: int, chunk_bytes: int) -> Iterator[Chunk]:
    """The rows of a COPY. A chunk owns its bytes."""
    yield from _Copy(connection.pgconn, fields, chunk_bytes).chunks(query)


class _Copy:
    def __init__(self, pgconn: pq.abc.PGconn, fields: int, chunk_bytes: int) -> None:
        self._pgconn, self._fields, self._chunk_bytes = pgconn, fields.to_bytes(FIELDS, "big"), chunk_bytes
        self._error: CopyRefused | None = None
        self._readable = select.poll()
        self._readable.register(pgconn.socket, select.POLLIN)

    def chunks(self, query: bytes) -> Iterator[Chunk]:
        self._send(query)
        if self._result() == pq.ExecStatus.COPY_OUT:
            with wake_rarely(self._pgconn.socket):
                yield from self._rows()
        while self._result() is not None:
            pass
        if self._error:
            raise self._error

    def _rows(self) -> Iterator[Chunk]:
        data, sizes, more = self._chunk()
        if sizes:
            begin = header_size(bytes(data[: sizes[0]]))
            del data[:begin]
            sizes[:1] = [sizes[0] - begin] if sizes[0] > begin else []
        while True:
            if sizes and sizes[-1] == len(END) and data.endswith(END):
                sizes.pop()
            if sizes:
                yield self._make_chunk(data, np.array(sizes, np.int64))
            if not more:
                return
            data, sizes, more = self._chunk()

    def _chunk(self) -> tuple[bytearray, list[int], bool]:
        """Rows of about a chunk's bytes, the size of each, and whether more may follow."""
        data = bytearray()
        sizes: list[int] = []
        empty_reads = 0
        get, add, enough = self._pgconn.get_copy_data, sizes.append, self._chunk_bytes
        while True:
            size, row = get(_NO_WAIT)
            if size > 0:
                empty_reads = 0
            while size > 0:  # every row passes here
                data += row
                add(size)
                if len(data) >= enough:
                    return data, sizes, True
                size, row = get(_NO_WAIT)
            if size != _NO_ROW:
                return data, sizes, False
            if empty_reads == _MAX_EMPTY_READS:
                self._readable.poll(PATIENCE_SECONDS * 1000)
                empty_reads = 0
            self._pgconn.consume_input()
            empty_reads += 1

    def _make_chunk(self, data: bytearray, sizes: Numbers) -> Chunk:
        ends = np.cumsum(sizes)
        begins = ends - sizes
        data += bytes(PADDING)
        counts = windows(np.frombuffer(data, np.uint8), begins, [("fields", "<u2")])["fields"]
        unexpected = np.flatnonzero(counts != int.from_bytes(self._fields, "little"))
        if len(unexpected):
            raise unexpected_row(counts[unexpected[0]].tobytes(), self._fields)
        return Chunk(data, begins + FIELDS, ends)

    def _send(self, query: bytes) -> None:
        self._pgconn.send_query(query)
        ready = select.poll()
        ready.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        while self._pgconn.flush():
            ready.poll()
            self._pgconn.consume_input()

    def _result(self) -> int | None:
        """The status of the next result; None: the server is ready for another query."""
        while self._pgconn.is_busy():
            self._readable.poll(_ANSWER_MILLISECONDS)
            self._pgconn.consume_input()
        result = self._pgconn.get_result()
        if result is None:
            return None
        if result.status == pq.ExecStatus.FATAL_ERROR:
            self._error = _refusal(result)
        return result.status


def _refusal(result: pq.abc.PGresult) -> CopyRefused:
    fields = (pq.DiagnosticField.SEVERITY, pq.DiagnosticField.MESSAGE_PRIMARY, pq.DiagnosticField.SQLSTATE)
    severity, message, sqlstate = ((result.error_field(field) or b"").decode(errors="replace") for field in fields)
    if not message:  # libpq's own message: the connection broke
        return CopyRefused(result.error_message.decode(errors="replace"))
    return CopyRefused.of(severity, message, sqlstate)


Receiver = Callable[[Connection, bytes, int, int], Iterator[Chunk]]  # statement, fields of a row, bytes of a chunk
_FIRST_WITH_KERBEROS = 120_000


@dataclass(frozen=True)
class Tuning:
    """How much of a COPY is received at once."""

    chunk_bytes: int = 4 << 20


DEFAULT = Tuning()


class CopyReader:
    """Reads over a connection that the caller opens and closes.

    Plain connections are read from their socket, encrypted ones through OpenSSL or libpq; the chunks are the same.
    """

    def __init__(self, connection: Connection, tuning: Tuning = DEFAULT) -> None:
        self.connection, self._tuning = connection, tuning
        self.receive = receiver(connection)

    def chunks(self, query: str, fields: int) -> Iterator[Chunk]:
        """The rows of a query with so many columns. The next chunk may overwrite it.

        The connection is idle again after the last chunk; before, the caller can only close it.
        Raises CopyRefused, psycopg.Error or OSError.
        """
        statement = f"COPY ({query}) TO STDOUT (FORMAT binary)".encode()
        return self.receive(self.connection, statement, fields, self._tuning.chunk_bytes)


class UnusableSnapshot(psycopg.DatabaseError):
    """The server refuses to read in the exported snapshot."""

    def __init__(self, reason: psycopg.Error) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SnapshotReader(CopyReader):
    """A connection of its own, with one transaction in an exported snapshot. Close it after an error.

    `settings` is the statement that fixes the session's settings. Raises UnusableSnapshot, or another psycopg.Error.
    """

    def __init__(self, url: Secret, snapshot: str, settings: str | None = None, tuning: Tuning = DEFAULT) -> None:
        connection = connect(url)
        try:
            try:
                connection.execute(f"{BEGIN}; SET TRANSACTION SNAPSHOT '{snapshot}'")
            except psycopg.Error as error:
                raise UnusableSnapshot(error) from None
            connection.execute(settings or session_sql())
            super().__init__(connection, tuning)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def receiver(connection: Connection) -> Receiver:
    """The fastest transport of the connection. libpq knows whether it uses TLS, only the server whether Kerberos."""
    if connection.pgconn.ssl_in_use:
        return tls_chunks if has_session(connection) else libpq_chunks
    if connection.info.server_version < _FIRST_WITH_KERBEROS:
        return socket_chunks
    kerberos = connection.execute("SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()").fetchone()
    return libpq_chunks if kerberos and kerberos[0] else socket_chunks
