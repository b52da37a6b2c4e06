"""A ledger of ten million bookmarks: finding 1,000 changed objects, against the listing alone.

The listing is generated, page by page, in place of a network: keys and etags as S3 shows them, a thousand a page.
Run: python bench/bookmarks.py [OBJECTS] [sqlite|postgres]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.bookmarks import Ledger
from headwater.model.position.marks import ObjectsMark
from headwater.model.secret import Secret
from headwater.progress.open import open_store
from headwater.sources.objects.listing_diff import LISTING, diff_listing
from headwater.sources.objects.staging import StagingRun, stage

PAGE, CHANGED = 1_000, 1_000


def main(objects: int, stores: list[str]) -> None:
    for store_type in stores:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = open_store([Secret(address(store_type, stack))], folder)
            ledger, lease = store.ledger("bench"), store.acquire("bench", "bench", 36_000)
            began = time.monotonic()
            settings = ObjectsSourceSettings(url="s3://bench/", max_objects=1_000_000)
            stage(diff_listing(listing(objects), ledger), StagingRun(ledger, lease, "first"), ObjectsMark(0), settings)
            print(
                f"{store_type}: first look, {objects:,} bookmarks written in {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if store_type == "postgres":
                settle(store.address)
            mark = ObjectsMark(ledger.newest())
            best = [float("inf")] * 2  # a busy neighbour lengthens single rounds
            for round_number in range(1, 4):
                alone = timed(lambda n=round_number: sum(page.num_rows for page in listing(objects, n)))
                result = timed(partial(changed, objects, round_number, ledger))
                stage(
                    diff_listing(listing(objects, round_number), ledger),
                    StagingRun(ledger, lease, "next"),
                    mark,
                    settings,
                )
                mark = ObjectsMark(ledger.newest())
                best = [min(best[0], alone[0]), min(best[1], result[0])]
                print(
                    f"  listing alone {alone[0]:6.2f} s   listing and comparison {result[0]:6.2f} s, {result[1]:,} changed"
                    f"   {result[0] / alone[0]:.2f} ×",
                    flush=True,
                )
            print(f"  best of three: {best[1]:.2f} s against {best[0]:.2f} s, {best[1] / best[0]:.2f} × (at most 1.3)")
            print(f"  peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB (below 300)")


def address(store_type: str, stack: ExitStack) -> str:
    if store_type == "sqlite":
        return "sqlite:///progress.db"
    from headwater.services.stack.postgres import running_postgres

    return stack.enter_context(running_postgres()).url()


def settle(url: str) -> None:
    """What autovacuum does in the minutes after ten million rows came in: not while it is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def listing(objects: int, round_number: int = 0) -> Iterator[pa.RecordBatch]:
    """A thousand objects, spread evenly, have another etag in each round."""
    step = objects // CHANGED
    for begin in range(0, objects, PAGE):
        numbers = np.arange(begin, min(begin + PAGE, objects))
        texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 10, "0")
        keys = pc.binary_join_element_wise("events/year=2026/part-", texts, ".json.gz", "")
        versions = pa.array(np.where((numbers % step < round_number), numbers % step + 1, 0)).cast(pa.string())
        etags = pc.binary_join_element_wise('"d41d8cd98f00b204e980', texts, versions, '"', "")
        sizes, modified = pa.array(10_000 + numbers), pa.array(1_767_225_600_000_000 + numbers * 1_000_000)
        yield pa.RecordBatch.from_arrays([keys, etags, sizes, modified], schema=LISTING)


def changed(objects: int, round_number: int, ledger: Ledger) -> int:
    return sum(difference.changed.num_rows for difference in diff_listing(listing(objects, round_number), ledger))


def timed(work) -> tuple[float, int]:
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000, sys.argv[2:] or ["sqlite", "postgres"])
