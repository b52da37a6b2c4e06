"""A worker in a process of its own: `worker_child.py cycles|freeze PIPELINE`; a line of JSON per cycle.

cycles: one after another until the file `stop` lies beside the pipeline. freeze: one cycle that stops itself (SIGSTOP) in
the middle of staging, when a part of what it listed is in the ledger and the next is about to be.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headwater.api import Pipeline, Project
from headwater.engine.cycle import run_cycle
from headwater.engine.result import CycleResult
from headwater.model.bookmarks import Block
from headwater.model.progress import Lease
from headwater.progress.ledger import SqlLedger
from headwater.sources.objects.source import ObjectsSource
from headwater.sources.objects.tuning import Tuning
from headwater.storage.local import Folder
from headwater.storage.open import open_container


class FreezingLedger(SqlLedger):
    """Stops the process with the third write in its hand."""

    writes = itertools.count(1)

    def stage(self, lease: Lease, staged: pa.Table, blocks: Sequence[Block]) -> None:
        if next(self.writes) == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        super().stage(lease, staged, blocks)


def cycles(pipeline: Pipeline, stop: Path) -> None:
    while not stop.exists():
        say(pipeline.run_once())


def freeze(pipeline: Pipeline) -> None:
    small = Tuning(chunk_rows=1, lookup_ranges=1, block_keys=1, transaction_rows=1)
    settings, ledger = pipeline.settings.source.objects, pipeline.ledger()
    assert settings is not None
    assert isinstance(ledger, SqlLedger)
    freezing = FreezingLedger(ledger.pipeline, ledger._run, ledger._fenced)
    folder = open_container(settings, pipeline.folder, pipeline.project.settings.s3)
    assert isinstance(folder, Folder)
    source = ObjectsSource(settings, replace(folder, page_size=5), lambda: freezing, cores=2, tuning=small)
    say(run_cycle(replace(pipeline.open(), source=source)))


def say(result: CycleResult) -> None:
    sys.stdout.write(json.dumps(result.to_json()) + "\n")
    sys.stdout.flush()


def main(mode: str, path: Path) -> None:
    with Project.open(path.parent) as project:
        pipeline = project.pipelines([path])[0]
        if mode == "freeze":
            freeze(pipeline)
        else:
            cycles(pipeline, path.parent / "stop")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
