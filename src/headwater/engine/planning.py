"""The next window, planned under the lease."""

from __future__ import annotations

from headwater.model.marks import Mark
from headwater.model.progress import Lease
from headwater.model.source import Plan, Separates, Source, Stages


def next_window(
    source: Source, mark: Mark | None, lease: Lease, run: str, without: frozenset[str] = frozenset()
) -> Plan:
    """A source that stages writes down what it found; for a look without a lease there is `plan`.

    `without` are streams that wait: what they bring next comes when they have caught up.
    """
    if isinstance(source, Stages):
        return source.stage(mark, lease, run)
    return source.plan_without(mark, without) if without and isinstance(source, Separates) else source.plan(mark)
