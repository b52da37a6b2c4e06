"""One cycle in a process of its own, over the source as it is, to be killed at a fault point: `object_child.py PIPELINE`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headwater.api import Project
from headwater.testing.crashes import borrow


def main(path: Path) -> None:
    project = Project.open(path.parent, spark=borrow())
    result = project.pipelines([path])[0].run_once()
    sys.stdout.write(json.dumps(result.to_json()) + "\n")
    sys.stdout.flush()
    os._exit(0)  # an ordinary exit would stop the session that was only borrowed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
