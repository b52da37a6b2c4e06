"""The next window, planned under the lease."""

from __future__ import annotations

from headwater.model.marks import Mark
from headwater.model.progress import Lease
from headwater.model.source import Plan, Source, Stages


def next_window(source: Source, mark: Mark | None, lease: Lease, run: str) -> Plan:
    """A source that stages writes down what it found; for a look without a lease there is `plan`."""
    return source.stage(mark, lease, run) if isinstance(source, Stages) else source.plan(mark)
