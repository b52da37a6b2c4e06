"""What a task leaves behind in its worker."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: it changes what the collector sees.
WORKER = """
import gc, weakref
from headwater.sinks.tasks import run_items

class Knot:
    def __init__(self):
        self.self = self

knots = []
def work(_item):
    knot = Knot()
    knots.append(weakref.ref(knot))
    return [b"done"]

for _ in range(2):
    assert list(run_items(work, ["item"], [0])) == [b"done"]
    frozen = gc.get_freeze_count()
    gc.collect()
    print(frozen > 10_000, [knot() is None for knot in knots])
"""


def test_after_a_task_the_collector_finds_its_garbage_and_no_longer_looks_at_modules():
    said = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines() == ["True [True]", "True [True, True]"]
