"""Labels that a window ends at become tags on the tables, before the mark moves."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.engine.parts import Parts
from headwater.model.lsn import lsn_text
from headwater.model.lsn_mark import LsnMark, TableSeen
from headwater.model.marks import Mark
from headwater.model.progress import HistoryEntry
from headwater.model.sink import Attempt, Tags


@dataclass(frozen=True)
class Labelled:
    """Which labels stand at a mark, and whose tables hold exactly what the source held there."""

    labels: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # `sales.orders: it is being copied`

    @property
    def note(self) -> str:
        """For the history."""
        return "; ".join(f"label {label}" for label in self.labels)


def labelled(end: Mark) -> Labelled:
    """A table under a label that holds something else would be a lie: such tables are left out."""
    if not isinstance(end, LsnMark) or not end.labels:
        return Labelled()
    wrong = {stream: _why_not(table, end.lsn) for stream, table in sorted(end.tables.items())}
    exact = tuple(stream for stream, why in wrong.items() if not why)
    return Labelled(end.labels, exact, tuple(f"{stream}: {why}" for stream, why in wrong.items() if why))


def _why_not(table: TableSeen, lsn: int) -> str:
    if table.copied_to is not None:
        return "it is being copied"
    if table.copied > lsn:
        return f"its copy is of a later moment ({lsn_text(table.copied)})"
    if table.landed is not None and table.landed < lsn:
        return f"its changes have landed up to {lsn_text(table.landed)} only"
    return f"it has to be copied again ({table.stale})" if table.stale else ""


def tag_tables(parts: Parts, attempt: Attempt) -> Labelled:
    """Tell every sink that can. Again in a recovery: what is there stays."""
    found = labelled(attempt.window.end)
    if found.labels:
        parts.faults.reach("label.before")
        for sink in parts.sinks():
            if isinstance(sink, Tags) and found.streams:
                sink.tag(attempt, found.streams, found.labels)
        parts.faults.reach("label.after")
    return found


def is_noted(entry: HistoryEntry, label: str) -> bool:
    """Whether a line of the history says that the label has landed."""
    return entry.kind == "landed" and f"label {label}" in entry.why.split("; ")
