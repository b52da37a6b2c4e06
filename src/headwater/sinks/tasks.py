"""Work on Spark's executors: one task per item, which returns bytes or raises Headwater's errors, and counts its rows.

Spark passes a task's exception to the driver as text only. So a task encodes its error into that text, and the driver
decodes it. Accumulators arrive when a task ends, so each task sends its count in datagrams, for display.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hmac
import json
import re
import secrets
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from headwater.model import errors
from headwater.model.errors import HeadwaterError, RunError
from headwater.model.rows import Rows
from headwater.model.secret import masked
from headwater.model.spark.dataframe import ReadSplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's accumulators reach the driver when a task ends, and a task may take minutes. So each task sends the driver
# datagrams with its count. A lost one does not matter: every datagram holds the whole count of its part, and the sink
# reports the final number.

Report = Callable[[int, int], None]  # the number of a part, and how many of its rows are written

_INTERVAL_SECONDS = 0.5
_COUNTS = struct.Struct("!QQ")
_TOKEN_BYTES = 16


class RowCounter:
    """The rows of one landing. A part counts with the most that any try at it reached."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress, self._reported = progress, 0
        self._parts: dict[int, int] = {}
        self._lock = threading.Lock()

    def part(self, number: int, rows: int) -> None:
        """A part has written so many rows. A repeated task starts at 0 again; the count never decreases."""
        with self._lock:
            self._parts[number] = max(rows, self._parts.get(number, 0))
            self._report_up_to(sum(self._parts.values()))

    def at_least(self, rows: int) -> None:
        """So many rows are written, whatever the parts reported."""
        with self._lock:
            self._report_up_to(rows)

    def _report_up_to(self, rows: int) -> None:
        if rows > self._reported:
            self._progress(rows - self._reported)
            self._reported = rows


def count_rows(batches: Iterable[pa.RecordBatch], part: int, report: Report) -> Iterator[pa.RecordBatch]:
    """The same batches; reports after a batch, twice a second at most, and at the end."""
    rows, reported_at = 0, time.monotonic()
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if time.monotonic() - reported_at >= _INTERVAL_SECONDS:
            report(part, rows)
            reported_at = time.monotonic()
    report(part, rows)


@dataclass(frozen=True)
class CountSender:
    """Sends a task's count to the driver; sent to the workers."""

    host: str
    port: int
    token: bytes = field(repr=False)

    def __call__(self, part: int, rows: int) -> None:
        # A datagram that cannot be sent must not fail the landing.
        with contextlib.suppress(OSError), socket.socket(_family(self.host), socket.SOCK_DGRAM) as sender:
            sender.sendto(self.token + _COUNTS.pack(part, rows), (self.host, self.port))


@contextmanager
def receive_counts(spark: SparkSession, counter: RowCounter) -> Iterator[Report]:
    """A report for tasks, whose counts are received until the block ends."""
    receiver = open_receiver(*_driver_addresses(spark))
    if receiver is None:
        yield ignore_count
        return
    with receiver.socket:
        sender = CountSender(receiver.host, receiver.socket.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))
        with _in_background(receiver.socket, sender.token, counter):
            yield sender


def ignore_count(part: int, rows: int) -> None:
    """The report where the driver cannot receive counts."""


@dataclass(frozen=True)
class Receiver:
    """A socket of the driver, and the host under which executors reach it."""

    socket: socket.socket
    host: str


def open_receiver(host: str, bind: str) -> Receiver | None:
    """None: not possible. The landing continues, and reports its count at the end."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
        address, bind = _ip_address(host), _ip_address(bind)
        listener = undo.enter_context(socket.socket(_family(bind), socket.SOCK_DGRAM))
        listener.bind((bind, 0))
        undo.pop_all()
        return Receiver(listener, address)
    return None


@contextmanager
def _in_background(receiver: socket.socket, token: bytes, counter: RowCounter) -> Iterator[None]:
    stop, stopped = socket.socketpair()
    listener = threading.Thread(
        target=_receive, args=(receiver, stopped, token, counter), name="headwater-row-count", daemon=True
    )
    with stop, stopped:
        listener.start()
        try:
            yield
        finally:
            stop.sendall(b"stop")
            listener.join()


def _receive(receiver: socket.socket, stopped: socket.socket, token: bytes, counter: RowCounter) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(receiver, selectors.EVENT_READ)
        selector.register(stopped, selectors.EVENT_READ)
        while stopped not in [key.fileobj for key, _ in selector.select()]:
            message = receiver.recv(1024)
            if len(message) == _TOKEN_BYTES + _COUNTS.size and hmac.compare_digest(message[:_TOKEN_BYTES], token):
                counter.part(*_COUNTS.unpack(message[_TOKEN_BYTES:]))


def _driver_addresses(spark: SparkSession) -> tuple[str, str]:
    """The address where executors reach the driver, and the one it binds to: Spark's own."""
    if str(spark.sparkContext.master).startswith("local"):
        return "127.0.0.1", "127.0.0.1"
    conf = spark.sparkContext.getConf()
    host = str(conf.get("spark.driver.host"))
    return host, str(conf.get("spark.driver.bindAddress", host))


def _ip_address(host: str) -> str:
    """Resolved once, here: a task does not wait for a name server."""
    return str(socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_DGRAM)[0][4][0])


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


_ENCODED = re.compile(r"headwater-task-error:([A-Za-z0-9+/=]+);")
_RESULT = "result binary"
_THREADS = 4


class TaskFailed(Exception):
    """An error that is encoded in its text, for the driver."""


def run_tasks(
    spark: SparkSession, work: Callable[[Any], Iterable[bytes]], items: Sequence[object], activity: str
) -> list[bytes]:
    """`work(item)` for every item, each in its own task; all results, in any order."""
    if not items:
        return []
    # No DataFrame: planning a query takes longer than starting its tasks.
    numbers = spark.sparkContext.range(0, len(items), 1, len(items))
    tasks = numbers.mapPartitions(partial(run_items, work, tuple(items)))
    with _task_errors(activity):
        return list(tasks.collect())


def run_here(work: Callable[[Any], Iterable[bytes]], items: Sequence[object], activity: str) -> list[bytes]:
    """The same in threads of this process, for work that is smaller than a Spark job."""
    with ThreadPoolExecutor(max_workers=_THREADS) as threads:
        try:
            return [result for results in threads.map(lambda item: list(work(item)), items) for result in results]
        except HeadwaterError:
            raise
        except Exception as error:
            raise RunError(f"{activity}: {_last_line(error)}") from error


def run_over_frame(
    frame: DataFrame, work: Callable[[int, Iterable[pa.RecordBatch]], Iterable[bytes]], activity: str
) -> list[bytes]:
    """`work(number, batches)` for every partition of a DataFrame."""
    with _task_errors(activity):
        return [bytes(row[0]) for row in frame.mapInArrow(partial(_run_batches, work), _RESULT).collect()]


def run_items(
    work: Callable[[Any], Iterable[bytes]], items: Sequence[object], numbers: Iterable[int]
) -> Iterator[bytes]:
    """What a Spark task does in its worker: `work` for the items of these numbers."""
    with _quick_worker(), encoded_errors():
        for number in numbers:
            yield from work(items[number])


def _run_batches(
    work: Callable[[int, Iterable[pa.RecordBatch]], Iterable[bytes]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this inside a task
    with _quick_worker(), encoded_errors():
        results = list(work(context.partitionId(), batches))
        yield pa.record_batch([pa.array(results, type=pa.binary())], names=["result"])


@contextmanager
def _quick_worker() -> Iterator[None]:
    """Leave the worker so that its next task starts at once.

    Before every task PySpark invalidates all importers, and each of the sixteen for its own zip archive reads the
    archive's directory: a quarter of a second per task. Imported modules stay imported; an importer that is needed
    again is created again. After every task PySpark collects garbage, which visits a hundred thousand permanent objects
    of modules: they are frozen once.
    """
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        for path, importer in list(sys.path_importer_cache.items()):
            if isinstance(importer, zipimporter):
                del sys.path_importer_cache[path]


class encoded_errors:  # noqa: N801 - a context manager
    """Errors leave the block as TaskFailed with the error encoded, without its trace (G11)."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, HeadwaterError):
            raise TaskFailed(_encode(type(error).__name__, error.message, error.hint)) from None
        if isinstance(error, Exception):
            raise TaskFailed(_encode("", _last_line(error), "")) from None


def _last_line(error: Exception) -> str:
    lines = masked(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def _encode(name: str, message: str, hint: str) -> str:
    content = json.dumps([name, message, hint]).encode()
    return f"headwater-task-error:{base64.b64encode(content).decode()};"


@contextmanager
def _task_errors(activity: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise task_error(str(error), activity) from error


def task_error(text: str, activity: str) -> HeadwaterError:
    """The error of a failed Spark job."""
    encoded = _ENCODED.search(text)
    if encoded:
        name, message, hint = json.loads(base64.b64decode(encoded[1]))
        error_class = getattr(errors, name, None) if name else None
        if isinstance(error_class, type) and issubclass(error_class, HeadwaterError):
            return error_class(message, hint=hint)
        return RunError(f"{activity}: {message}", hint=hint)
    lines = [line.strip() for line in masked(text).splitlines() if line.strip()]
    conditions = [line for line in lines if line.startswith("[")][:1]  # Spark's own error classes come first
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception)\b", line)]
    return RunError(f"{activity}: {(conditions or causes or lines or ['no reason from Spark'])[-1][:500]}")


# Up to here rows are read and written before a Spark job with Python workers starts.
SMALL_WINDOW = 50_000

Work = Callable[[int, Iterable["pa.RecordBatch"]], Iterable[bytes]]  # the part's number and rows → results


def run_over_rows(
    rows: Rows, work: Work, spark: Callable[[], SparkSession], activity: str, counter: RowCounter
) -> list[bytes]:
    """`work(part, batches)` for every part; all results. The counter receives the rows as they are read.

    After a failure another process may repeat a part. `spark` is called only if a session is needed.
    """
    numbers = range(len(rows.splits or ()))
    if is_small(rows):
        return run_here(partial(_on_split, work, counter.part, rows.read_split), numbers, activity)
    session = spark()
    with receive_counts(session, counter) as report:
        if rows.splits is not None:
            return run_tasks(session, partial(_on_split, work, report, rows.read_split), numbers, activity)
        return run_over_frame(rows.dataframe(session), partial(_on_part, work, report), activity)


def is_small(rows: Rows) -> bool:
    """True if Arrow reads the rows, and they are known to be few."""
    if rows.splits is None:
        return False
    counts = [split.rows for split in rows.splits]
    return all(count is not None for count in counts) and sum(count or 0 for count in counts) <= SMALL_WINDOW


def _on_split(work: Work, report: Report, read_split: ReadSplit, number: int) -> Iterable[bytes]:
    return _on_part(work, report, number, read_split(number))


def _on_part(work: Work, report: Report, number: int, batches: Iterable[pa.RecordBatch]) -> Iterable[bytes]:
    return work(number, count_rows(batches, number, report))
