"""Cycles in a process of its own, one after another until it is killed: `cycles_child.py PIPELINE`; a line per cycle."""

from __future__ import annotations

import sys
from pathlib import Path

from headwater.api import Project
from headwater.testing.crashes import borrow


def main(path: Path) -> None:
    project = Project.open(path.parent, spark=borrow())
    pipeline = project.pipelines([path])[0]
    while True:
        result = pipeline.run_once()
        sys.stdout.write(f"{result.outcome}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
