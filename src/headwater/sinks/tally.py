"""Rows on their way into a sink, counted for people while tasks still run.

Spark's accumulators reach the driver when a task ends, and a task may take minutes. So each task now and then
sends the driver a datagram with its count. One that is lost costs nothing: every datagram holds the whole count
of its part, and the sink says how many there were in the end.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Report = Callable[[int, int], None]  # the number of a part, and how many of its rows are done

_RHYTHM_SECONDS = 0.5
_COUNTS = struct.Struct("!QQ")
_TOKEN_BYTES = 16


class Tally:
    """What has been told of one landing. Parts are counted by the most that any try at them reached."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell, self._told = tell, 0
        self._parts: dict[int, int] = {}
        self._lock = threading.Lock()

    def part(self, number: int, rows: int) -> None:
        """A part has got so far. A task that is tried again begins anew, and is told once (never backwards)."""
        with self._lock:
            self._parts[number] = max(rows, self._parts.get(number, 0))
            self._tell_up_to(sum(self._parts.values()))

    def at_least(self, rows: int) -> None:
        """So many are done, whatever was heard of the parts."""
        with self._lock:
            self._tell_up_to(rows)

    def _tell_up_to(self, rows: int) -> None:
        if rows > self._told:
            self._tell(rows - self._told)
            self._told = rows


def counted(batches: Iterable[pa.RecordBatch], part: int, report: Report) -> Iterator[pa.RecordBatch]:
    """The same batches; reports when the next one is asked for, twice a second at most, and at the end."""
    rows, reported_at = 0, time.monotonic()
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if time.monotonic() - reported_at >= _RHYTHM_SECONDS:
            report(part, rows)
            reported_at = time.monotonic()
    report(part, rows)


@dataclass(frozen=True)
class Wire:
    """A task's way to tell the driver; sent to the workers."""

    host: str
    port: int
    token: bytes = field(repr=False)

    def __call__(self, part: int, rows: int) -> None:
        # Whatever keeps the datagram from leaving, the rows matter more than their display.
        with contextlib.suppress(OSError), socket.socket(_family(self.host), socket.SOCK_DGRAM) as sender:
            sender.sendto(self.token + _COUNTS.pack(part, rows), (self.host, self.port))


@contextmanager
def listening(spark: SparkSession, tally: Tally) -> Iterator[Report]:
    """Tasks that are given the report are heard until the block ends."""
    ear = open_ear(*_driver_addresses(spark))
    if ear is None:
        yield unheard
        return
    with ear.socket:
        wire = Wire(ear.host, ear.socket.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))
        with _in_background(ear.socket, wire.token, tally):
            yield wire


def unheard(part: int, rows: int) -> None:
    """The report that nobody waits for."""


@dataclass(frozen=True)
class Ear:
    """A socket of the driver, and the host under which executors reach it."""

    socket: socket.socket
    host: str


def open_ear(host: str, bind: str) -> Ear | None:
    """None where that is not possible: a load does not fail for its display, and its count comes at the end."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
        number, bind = _number(host), _number(bind)
        ear = undo.enter_context(socket.socket(_family(bind), socket.SOCK_DGRAM))
        ear.bind((bind, 0))
        undo.pop_all()
        return Ear(ear, number)
    return None


@contextmanager
def _in_background(ear: socket.socket, token: bytes, tally: Tally) -> Iterator[None]:
    mine, other = socket.socketpair()
    listener = threading.Thread(target=_listen, args=(ear, other, token, tally), name="headwater-tally", daemon=True)
    with mine, other:
        listener.start()
        try:
            yield
        finally:
            mine.sendall(b"over")
            listener.join()


def _listen(ear: socket.socket, over: socket.socket, token: bytes, tally: Tally) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(ear, selectors.EVENT_READ)
        selector.register(over, selectors.EVENT_READ)
        while over not in [key.fileobj for key, _ in selector.select()]:
            message = ear.recv(1024)
            if len(message) == _TOKEN_BYTES + _COUNTS.size and hmac.compare_digest(message[:_TOKEN_BYTES], token):
                tally.part(*_COUNTS.unpack(message[_TOKEN_BYTES:]))


def _driver_addresses(spark: SparkSession) -> tuple[str, str]:
    """Where executors reach the driver, and where it listens: what Spark itself uses."""
    if str(spark.sparkContext.master).startswith("local"):
        return "127.0.0.1", "127.0.0.1"
    conf = spark.sparkContext.getConf()
    host = str(conf.get("spark.driver.host"))
    return host, str(conf.get("spark.driver.bindAddress", host))


def _number(host: str) -> str:
    """Looked up once, here: a task does not wait for a name server."""
    return str(socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_DGRAM)[0][4][0])


def _family(number: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in number else socket.AF_INET
