"""A pipeline in a process of its own: `child.py MODE PIPELINE`; a line of JSON per cycle.

cycle: one cycle. acknowledged: one cycle over a source that is acknowledged, which polled sources are not. cycles: one
after another, until the process is killed or a file `NAME.stop` lies beside the pipeline. repair: verify and repair.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from headwater.api import Pipeline, Project
from headwater.engine.cycle import run_cycle
from headwater.engine.verify.verify import VerifyRequest
from headwater.testing.crashes import borrow
from headwater.testing.follower import RecordingSource


def cycle(pipeline: Pipeline) -> Iterator[object]:
    yield pipeline.run_once().to_json()


def acknowledged(pipeline: Pipeline) -> Iterator[object]:
    opened = pipeline.open()
    source = RecordingSource(opened.source, pipeline.folder / "acknowledged.txt")
    yield run_cycle(replace(opened, source=source)).to_json()


def cycles(pipeline: Pipeline) -> Iterator[object]:
    while not (pipeline.folder / f"{pipeline.name}.stop").exists():
        yield pipeline.run_once().to_json()


def repair(pipeline: Pipeline) -> Iterator[object]:
    verified = pipeline.verify(VerifyRequest(delete_extra=True), repair=lambda _: True)
    yield [one.to_json() for one in verified.repaired]


MODES = {"cycle": cycle, "acknowledged": acknowledged, "cycles": cycles, "repair": repair}


def main(mode: str, path: Path) -> None:
    spark = borrow() if "PYSPARK_GATEWAY_PORT" in os.environ else None
    project = Project.open(path.parent, spark=spark)
    for result in MODES[mode](project.pipelines([path])[0]):
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    os._exit(0)  # an ordinary exit would stop the session that was only borrowed


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
