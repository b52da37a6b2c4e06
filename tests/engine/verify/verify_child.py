"""A repair in a process of its own, to be killed at a fault point: `verify_child.py PIPELINE`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headwater.api import Project
from headwater.engine.verify.verify import VerifyRequest
from headwater.testing.crashes import borrow


def main(path: Path) -> None:
    project = Project.open(path.parent, spark=borrow())
    verified = project.pipelines([path])[0].verify(VerifyRequest(delete_extra=True), repair=lambda _: True)
    sys.stdout.write(json.dumps([one.to_json() for one in verified.repaired]) + "\n")
    sys.stdout.flush()
    os._exit(0)  # an ordinary exit would stop the session that was only borrowed


if __name__ == "__main__":
    main(Path(sys.argv[1]))
