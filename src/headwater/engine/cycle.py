"""One cycle of one pipeline: recover, plan, intend, read, land, advance, acknowledge."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from dataclasses import replace
from functools import partial

from headwater.engine.abandoning import abandon, why_abandoned
from headwater.engine.attempting import attempt_at
from headwater.engine.kept_splits import kept_for
from headwater.engine.labels import labelled, tag_tables
from headwater.engine.lease import HeldLease, held_lease
from headwater.engine.parts import Parts
from headwater.engine.planning import next_window
from headwater.engine.result import CycleResult
from headwater.engine.side_by_side import side_by_side
from headwater.model.errors import HeadwaterError, RunError
from headwater.model.landing import Landing
from headwater.model.marks import columns_learned
from headwater.model.progress import HistoryEntry, Intent, Progress
from headwater.model.rows import Rows
from headwater.model.secret import masked
from headwater.model.sink import Attempt, Sink
from headwater.model.source import Acknowledges, Plan

_SHOWN_PARTS = 5


def run_cycle(parts: Parts) -> CycleResult:
    """Bring the pipeline one window further. Raises nothing: a failure is a result, and the mark stands (G1)."""
    cycle = _Cycle(parts)
    try:
        parts.faults.reach("lease.before")
        with held_lease(parts.store, parts.name, parts.owner, parts.lease_seconds) as lease:
            parts.faults.reach("lease.after")
            return cycle.run(lease)
    except HeadwaterError as error:
        return cycle.failed(error)
    except Exception as error:  # noqa: BLE001 - the border: one pipeline's surprise must not end the others
        surprise = RunError(
            f"{parts.name}: {type(error).__name__}: {masked(str(error))}", hint="run with --debug for the trace"
        )
        surprise.__cause__ = error
        return cycle.failed(surprise)


class _Cycle:
    """The state of a cycle on its way: what has been read, landed and remembered so far."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._run = uuid.uuid4().hex[:12]
        self._began = time.monotonic()
        self._result = CycleResult(parts.name, self._run, "nothing new")

    def run(self, lease: HeldLease) -> CycleResult:
        parts = self._parts
        progress = parts.store.load(parts.name)
        self._log(
            "cycle begins", mark=progress.mark or "none", store=parts.store.address, epoch=lease.lease.epoch
        )  # W4
        try:
            if progress.intent:
                progress = self._recover(lease, progress, progress.intent)
            plan = next_window(parts.source, progress.mark, lease.lease, self._run)
            self._result = replace(self._result, more=plan.more)
            self._warn(*plan.warnings)
            if plan.window:
                self._log("window", window=plan.window, rows=_expected_rows(plan))
                intent = Intent(self._run, plan.window, dt.datetime.now(dt.UTC))
                parts.faults.reach("intend.before")
                progress = parts.store.swap(lease.lease, progress, progress.intending(intent), None)
                parts.faults.reach("intend.after")
                progress = self._finish(lease, progress, intent)
        except HeadwaterError as error:
            self._remember_failure(lease, error)
            raise
        return self._done()

    def _recover(self, lease: HeldLease, progress: Progress, intent: Intent) -> Progress:
        """Finish what an earlier process began, or give it up where the source says that it is lost with that process."""
        parts = self._parts
        reason = why_abandoned(parts.source, intent)
        if reason:
            self._log("abandoned", window=intent.window, begun=intent.begun_at, reason=reason)
            return abandon(parts.store, lease.lease, progress, run=self._run, who=parts.owner, why=reason)
        self._log("recovering", window=intent.window, begun=intent.begun_at)
        progress = self._finish(lease, progress, intent)
        self._result = replace(self._result, recovered=True)
        return progress

    def _finish(self, lease: HeldLease, progress: Progress, intent: Intent) -> Progress:
        """Land the intent's window wherever it has not landed, then move the mark. The same for a first try and a recovery."""
        parts = self._parts
        progress = self._land_everywhere(lease, progress, intent)
        self._tell_of_postponed()
        landings = progress.intent.landed if progress.intent else ()
        parts.faults.reach("advance.before")
        # G1: every sink has given its landing. G3: `advanced` and the store both refuse to go back.
        done = CycleResult(parts.name, self._run, "landed", (intent.window,), landings, time.monotonic() - self._began)
        learned = columns_learned(intent.window.start, intent.window.end)
        if learned:
            self._log("columns", changed="; ".join(learned))
        finished = [] if intent.run == self._run else [f"finished what run {intent.run} began"]
        labels = labelled(intent.window.end).note
        why = "; ".join([*finished, *learned, *([labels] if labels else [])])
        entry = done.entry(parts.owner, lease.lease.epoch, why=why)
        progress = parts.store.swap(lease.lease, progress, progress.advanced(intent.window.end), entry)
        parts.faults.reach("advance.after")
        self._result = replace(
            self._result,
            outcome="landed",
            windows=(*self._result.windows, intent.window),
            landings=(*self._result.landings, *landings),
        )
        if isinstance(parts.source, Acknowledges):
            parts.faults.reach("acknowledge.before")
            parts.source.acknowledge(intent.window.end)  # G10: the source may forget only now, so it comes last.
            parts.faults.reach("acknowledge.after")
        return progress

    def _land_everywhere(self, lease: HeldLease, progress: Progress, intent: Intent) -> Progress:
        parts = self._parts
        attempt = attempt_at(parts, lease, self._run, intent.window)
        resumed = intent.run != self._run
        parts.faults.reach("read.before")
        sinks = parts.sinks()
        with (
            parts.source.read(intent.window) as streams,
            kept_for(len(sinks), [parts.rejects.tray.watching(stream) for stream in streams]) as kept,
        ):
            rows = [parts.transformed(stream) for stream in kept]
            parts.faults.reach("read.after")
            left = len(sinks) * len(rows)
            for sink in sinks:
                known = intent if resumed else None
                for landing in side_by_side(sink, rows, partial(self._land, sink, attempt, known)):
                    left -= 1
                    intent = replace(intent, landed=_with(intent.landed, landing, *parts.rejects.landings()))
                    if left or labelled(intent.window.end).labels:
                        # A crash before the window is done is finished, not repeated, even where the sink cannot tell.
                        progress = parts.store.swap(lease.lease, progress, progress.intending(intent), None)
        found = tag_tables(parts, attempt)
        if found.labels:
            self._log("labelled", labels=", ".join(found.labels), tables=len(found.streams))
            self._warn(*(f"label {', '.join(found.labels)}: no tag for {left}" for left in found.left_out))
        return progress.intending(intent)

    def _land(self, sink: Sink, attempt: Attempt, known: Intent | None, stream: Rows) -> Landing:
        """One stream in one sink; `known` is the intent of an earlier process, of which something may have landed."""
        parts = self._parts
        landing = self._known(sink, stream, attempt, known) if known else None
        if landing is None:
            parts.faults.reach("land.before")
            landing = sink.land(attempt, stream)
            parts.rejects.settle()  # again, for a sink that publishes while it reads
            parts.faults.reach("land.after")
            self._log_landing(landing)
        return landing

    def _tell_of_postponed(self) -> None:
        parts = sorted(self._parts.rejects.postponed)
        if parts:
            shown = ", ".join(parts[:_SHOWN_PARTS]) + (", …" if len(parts) > _SHOWN_PARTS else "")
            said = f"could not be read and bring{'s' if len(parts) == 1 else ''} no row: {len(parts):,} ({shown})"
            self._warn(said)

    def _warn(self, *sentences: str) -> None:
        for said in sentences:
            self._log("warning", message=said)
        self._result = replace(self._result, warnings=(*self._result.warnings, *sentences))

    def _log_landing(self, landing: Landing) -> None:
        aside = sum(found.rows for found in self._parts.rejects.landings() if found.stream == landing.stream)
        removed = landing.proof.get("removed")
        self._log(
            "landed",
            sink=landing.sink,
            stream=landing.stream,
            rows=landing.rows,
            **({"removed": removed} if removed else {}),
            **({"rejected": aside} if aside else {}),
            seconds=f"{landing.seconds:.2f}",
        )

    def _known(self, sink: Sink, rows: Rows, attempt: Attempt, intent: Intent) -> Landing | None:
        for landing in intent.landed:
            if (landing.sink, landing.stream) == (sink.label, rows.stream):
                return landing
        proven = sink.landed(attempt, rows.stream)
        if proven:
            self._log("already landed", sink=sink.label, stream=rows.stream, rows=proven.rows)
        return proven

    def _remember_failure(self, lease: HeldLease, error: HeadwaterError) -> None:
        """Put the failure on record, once: the same one repeated by every cycle would bury the rest."""
        parts = self._parts
        try:
            newest = parts.store.history(parts.name, 1)
            if newest and newest[0].kind == "failed" and newest[0].error == error.message:
                return
            progress = parts.store.load(parts.name)
            entry = HistoryEntry(
                kind="failed",
                run=self._run,
                at=dt.datetime.now(dt.UTC),
                who=parts.owner,
                epoch=lease.lease.epoch,
                start=str(progress.mark or "the beginning"),
                end="",
                seconds=round(time.monotonic() - self._began, 3),
                error=error.message,
            )
            parts.store.swap(lease.lease, progress, progress, entry)
        except HeadwaterError as second:
            # The first error is the one to show; that it could not be recorded is said beside it.
            self._log("failure not recorded", reason=second.message)

    def failed(self, error: HeadwaterError) -> CycleResult:
        # Sources and sinks do not know for whom they work; the command that a hint names should be ready to copy.
        error.hint = error.hint.replace("headwater rewind NAME", f"headwater rewind {self._parts.name}")
        self._log("failed", code=error.code, message=error.message)
        return replace(self._done(), outcome="failed", error=error)

    def _done(self) -> CycleResult:
        return replace(self._result, seconds=time.monotonic() - self._began)

    def _log(self, event: str, **fields: object) -> None:
        self._parts.log.event(self._parts.name, event, run=self._run, **fields)


def _expected_rows(plan: Plan) -> int | str:
    counts = [stream.rows for stream in plan.streams]
    return "unknown" if None in counts else sum(count or 0 for count in counts)


def _with(landed: tuple[Landing, ...], *more: Landing) -> tuple[Landing, ...]:
    newer = {(landing.sink, landing.stream) for landing in more}
    return (*(x for x in landed if (x.sink, x.stream) not in newer), *more)
