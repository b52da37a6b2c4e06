"""Labels: written into the source's WAL, read there by a window that ends at them, and set as tags on the tables."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.engine.pipeline import OpenPipeline
from headwater.model.errors import InputError
from headwater.model.position.lsn import lsn_number, lsn_text
from headwater.model.position.marks import LsnMark, Mark
from headwater.model.position.stream_state import TableState
from headwater.model.progress import HistoryEntry
from headwater.model.protocols.sink import Attempt, Tags
from headwater.model.protocols.source import Labels, check_label
from headwater.model.protocols.store import Store

_RECENT = 200  # more cycles than end between two looks at the history


@dataclass(frozen=True)
class Labelled:
    """Which labels stand at a mark, and whose tables hold exactly what the source held there."""

    labels: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # `sales.orders: it is being copied`

    @property
    def notes(self) -> list[str]:
        """For the history."""
        return [*(f"label {label}" for label in self.labels), *(f"no tag for {one}" for one in self.left_out)]


def labelled(end: Mark) -> Labelled:
    """Which tables hold exactly what the source held at the labels; the others get no tag."""
    if not isinstance(end, LsnMark) or not end.labels:
        return Labelled()
    wrong = {stream: _why_not(table, end.lsn) for stream, table in sorted(end.streams.items())}
    exact = tuple(stream for stream, why in wrong.items() if not why)
    return Labelled(end.labels, exact, tuple(f"{stream}: {why}" for stream, why in wrong.items() if why))


def _why_not(table: TableState, lsn: int) -> str:
    if table.copied_to is not None:
        return "it is being copied"
    if table.copied > lsn:
        return f"its copy is of a later moment ({lsn_text(table.copied)})"
    if table.landed is not None and table.landed < lsn:
        return f"its changes have landed up to {lsn_text(table.landed)} only"
    return f"it has to be copied again ({table.stale})" if table.stale else ""


def tag_tables(pipeline: OpenPipeline, attempt: Attempt) -> Labelled:
    """Tag in every sink that can. Repeated by a recovery: existing tags stay."""
    moment = labelled(attempt.window.end)
    if moment.labels:
        pipeline.faults.reach("label.before")
        for sink in pipeline.sinks():
            if isinstance(sink, Tags) and moment.streams:
                sink.tag(attempt, moment.streams, moment.labels)
        pipeline.faults.reach("label.after")
    return moment


@dataclass(frozen=True)
class WrittenLabel:
    """A label that stands in the source's log."""

    pipeline: str
    text: str
    lsn: str
    store: Store

    def landed(self) -> bool:
        """Whether the tables have the tag by now."""
        return any(is_noted(entry, self.text, self.lsn) for entry in self.store.history(self.pipeline, _RECENT))


def write_label(pipeline: OpenPipeline, mark: Mark | None, text: str) -> WrittenLabel:
    """Name this moment in the source's log. Raises InputError before anything is written."""
    check_label(text)
    sinks = [sink for sink in pipeline.sinks() if isinstance(sink, Tags)]
    if not isinstance(pipeline.source, Labels):
        raise InputError(
            f"{pipeline.name}: its source has no WAL to write a label to",
            hint="label a pipeline with a postgres source",
        )
    if not sinks:
        raise InputError(f"{pipeline.name}: none of its sinks keeps labels", hint="add an iceberg sink")
    if not isinstance(mark, LsnMark) or not mark.slot:
        raise InputError(
            f"{pipeline.name}: cannot label: the pipeline has not created its slot yet",
            hint="run it once first",
        )
    tagged = [name for sink in sinks for name in sink.tagged(pipeline.spark(), sorted(mark.streams), text)]
    if tagged:
        raise InputError(
            f"{pipeline.name}: label {text} exists already on {', '.join(tagged)}", hint="choose another name"
        )
    return WrittenLabel(pipeline.name, text, pipeline.source.label(text), pipeline.store)


def is_noted(entry: HistoryEntry, label: str, lsn: str) -> bool:
    """Whether a line of the history says that the label written at that LSN has landed."""
    if entry.kind != "landed" or f"label {label}" not in entry.why.split("; "):
        return False
    return lsn_number(entry.end.partition(";")[0]) >= lsn_number(lsn)
