"""One cycle in a process of its own, to be killed or frozen at a fault point: `cycle_child.py PIPELINE`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from headwater.api import Project
from headwater.engine.cycle import run_cycle
from headwater.testing.crashes import borrow
from headwater.testing.follower import RecordingSource


def main(path: Path) -> None:
    project = Project.open(path.parent, spark=borrow())
    opened = project.pipelines([path])[0].open()
    source = RecordingSource(opened.source, path.parent / "acknowledged.txt")
    result = run_cycle(replace(opened, source=source))
    sys.stdout.write(json.dumps(result.to_json()) + "\n")
    sys.stdout.flush()
    os._exit(0)  # an ordinary exit would stop the session that was only borrowed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
