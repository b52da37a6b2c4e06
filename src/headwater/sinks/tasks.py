"""Work on Spark's executors: one task per item, bytes back, errors as the errors they were.

Spark hands a task's exception to the driver as text only. So a task puts what went wrong into that text
in a form that the driver reads back.
"""

from __future__ import annotations

import base64
import gc
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from headwater.model import errors
from headwater.model.errors import HeadwaterError, RunError
from headwater.model.secret import masked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENVELOPE = re.compile(r"headwater-task-error:([A-Za-z0-9+/=]+);")
_RESULT = "result binary"
_THREADS = 4


class TaskFailed(Exception):
    """Carries an error to the driver as text."""


def run_tasks(
    spark: SparkSession, work: Callable[[Any], Iterable[bytes]], items: Sequence[object], doing: str
) -> list[bytes]:
    """`work(item)` for every item, each in a task of its own; all that they yield, in no order."""
    if not items:
        return []
    # No DataFrame: to plan a query takes longer than to start its tasks.
    numbers = spark.sparkContext.range(0, len(items), 1, len(items))
    tasks = numbers.mapPartitions(partial(_run_items, work, tuple(items)))
    with _told(doing):
        return list(tasks.collect())


def run_here(work: Callable[[Any], Iterable[bytes]], items: Sequence[object], doing: str) -> list[bytes]:
    """The same in threads of this process, for work that is smaller than a Spark job around it."""
    with ThreadPoolExecutor(max_workers=_THREADS) as threads:
        try:
            return [result for results in threads.map(lambda item: list(work(item)), items) for result in results]
        except HeadwaterError:
            raise
        except Exception as error:
            raise RunError(f"{doing}: {_last_line(error)}") from error


def run_over_frame(
    frame: DataFrame, work: Callable[[int, Iterable[pa.RecordBatch]], Iterable[bytes]], doing: str
) -> list[bytes]:
    """`work(number, batches)` for every partition of a DataFrame."""
    with _told(doing):
        return [bytes(row[0]) for row in frame.mapInArrow(partial(_run_batches, work), _RESULT).collect()]


def _run_items(
    work: Callable[[Any], Iterable[bytes]], items: Sequence[object], numbers: Iterable[int]
) -> Iterator[bytes]:
    with _quick_worker(), _enveloped():
        for number in numbers:
            yield from work(items[number])


def _run_batches(
    work: Callable[[int, Iterable[pa.RecordBatch]], Iterable[bytes]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext  # noqa: PLC0415 - only where Spark runs

    context = TaskContext.get()
    assert context is not None  # noqa: S101 - Spark calls this inside a task
    with _quick_worker(), _enveloped():
        made = list(work(context.partitionId(), batches))
        yield pa.record_batch([pa.array(made, type=pa.binary())], names=["result"])


@contextmanager
def _quick_worker() -> Iterator[None]:
    """Leave the worker so that its next task starts at once.

    Before every task PySpark tells all importers to look anew, and each of the sixteen that it has for its own
    zip archive reads the archive's directory: a quarter of a second per task. What is imported stays imported;
    an importer that is needed again is made again. After every task it collects garbage, which looks at a hundred
    thousand objects of modules that nobody will ever give up: they are taken out of its sight, once.
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


class _enveloped:  # noqa: N801 - a context manager, read as an adjective
    """Errors leave the block as a TaskFailed that names the error, without its trace (G11)."""

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, HeadwaterError):
            raise TaskFailed(_envelope(type(error).__name__, error.message, error.hint)) from None
        if isinstance(error, Exception):
            raise TaskFailed(_envelope("", _last_line(error), "")) from None


def _last_line(error: Exception) -> str:
    lines = masked(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def _envelope(kind: str, message: str, hint: str) -> str:
    content = json.dumps([kind, message, hint]).encode()
    return f"headwater-task-error:{base64.b64encode(content).decode()};"


@contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise task_error(str(error), doing) from error


def task_error(text: str, doing: str) -> HeadwaterError:
    """The error that a failed Spark job stands for."""
    found = _ENVELOPE.search(text)
    if found:
        kind, message, hint = json.loads(base64.b64decode(found[1]))
        known = getattr(errors, kind, None) if kind else None
        if isinstance(known, type) and issubclass(known, HeadwaterError):
            return known(message, hint=hint)
        return RunError(f"{doing}: {message}", hint=hint)
    lines = [line.strip() for line in masked(text).splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("[")][:1]  # Spark's own error classes come first
    causes = [line for line in lines if re.match(r"(Caused by: )?[\w.]+(Error|Exception)\b", line)]
    return RunError(f"{doing}: {(named or causes or lines or ['Spark gave no reason'])[-1][:500]}")
