"""A cycle that stops itself (SIGSTOP) in the middle of staging: `freezing_child.py cycle PIPELINE`; its result as JSON.

A part of what it listed is then in the ledger, and the next part is about to be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.api import Project
from headwater.engine.cycle import run_cycle
from headwater.model.bookmarks import Block, Ledger
from headwater.model.progress import Lease
from headwater.sources.objects.source import ObjectsSource
from headwater.sources.objects.tuning import Tuning
from headwater.storage.local import Folder
from headwater.storage.open import open_container


class FreezingLedger:
    """Stops the process before the third write; all else is the ledger's."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._writes = ledger, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def stage(self, lease: Lease, staged: pa.Table, blocks: Sequence[Block]) -> None:
        self._writes += 1
        if self._writes == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        self._ledger.stage(lease, staged, blocks)


def main(path: Path) -> None:
    small = Tuning(chunk_rows=1, lookup_ranges=1, block_keys=1, transaction_rows=1)
    with Project.open(path.parent) as project:
        pipeline = project.pipelines([path])[0]
        settings, ledger = pipeline.settings.source.objects, FreezingLedger(pipeline.ledger())
        assert settings is not None
        folder = open_container(settings, pipeline.folder, project.settings.s3)
        assert isinstance(folder, Folder)
        source = ObjectsSource(settings, replace(folder, page_size=5), lambda: ledger, cores=2, tuning=small)
        result = run_cycle(replace(pipeline.open(), source=source))
    sys.stdout.write(json.dumps(result.to_json()) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[2]))
