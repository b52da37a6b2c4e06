"""Work on all rows of a window, part by part: in this process when they are few, else in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from headwater.model.rows import Rows, Split, SplitRows
from headwater.sinks.tally import Report, Tally, counted, listening
from headwater.sinks.tasks import run_here, run_over_frame, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Up to here rows are read and written sooner than a Spark job with Python workers starts.
SMALL_WINDOW = 50_000

Work = Callable[[int, Iterable["pa.RecordBatch"]], Iterable[bytes]]  # the part's number and rows → what to hand back


def run_over_rows(rows: Rows, work: Work, spark: Callable[[], SparkSession], doing: str, tally: Tally) -> list[bytes]:
    """`work(part, batches)` for every part; all that they yield. The tally hears of the rows as they are taken.

    A part may be worked on again after a failure, by another process. `spark` is asked only where it is needed.
    """
    if isinstance(rows, SplitRows) and is_small(rows):
        return run_here(partial(_on_split, work, tally.part), list(enumerate(rows.splits)), doing)
    session = spark()
    with listening(session, tally) as report:
        if isinstance(rows, SplitRows):
            return run_tasks(session, partial(_on_split, work, report), list(enumerate(rows.splits)), doing)
        return run_over_frame(rows.dataframe(session), partial(_on_part, work, report), doing)


def is_small(rows: SplitRows) -> bool:
    """Whether the window is known to be small."""
    counts = [split.rows for split in rows.splits]
    return all(count is not None for count in counts) and sum(count or 0 for count in counts) <= SMALL_WINDOW


def _on_split(work: Work, report: Report, numbered: tuple[int, Split]) -> Iterable[bytes]:
    number, split = numbered
    return _on_part(work, report, number, split.read())


def _on_part(work: Work, report: Report, number: int, batches: Iterable[pa.RecordBatch]) -> Iterable[bytes]:
    return work(number, counted(batches, number, report))
