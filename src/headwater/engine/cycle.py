"""One cycle of one pipeline: recover, plan, intend, read, land, advance, acknowledge."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.engine.abandoning import abandon, why_abandoned
from headwater.engine.catching_up import try_again
from headwater.engine.going_on import left_by, rest_of
from headwater.engine.labels import labelled, tag_tables
from headwater.engine.landing import Lander, Landings
from headwater.engine.lease import HeldLease, held_lease
from headwater.engine.parts import Parts
from headwater.engine.planning import next_window
from headwater.engine.result import CycleResult
from headwater.model.errors import HeadwaterError, RunError
from headwater.model.marks import Mark, columns_learned
from headwater.model.progress import HistoryEntry, Intent, Progress, Waiting
from headwater.model.secret import masked
from headwater.model.source import Acknowledges, Plan
from headwater.model.window import Window

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
        self._own: dict[str, HeadwaterError] = {}  # of streams that failed by themselves

    def run(self, lease: HeldLease) -> CycleResult:
        parts = self._parts
        progress = parts.store.load(parts.name)
        self._log(
            "cycle begins", mark=progress.mark or "none", store=parts.store.address, epoch=lease.lease.epoch
        )  # W4
        try:
            if progress.intent:
                progress = self._recover(lease, progress, progress.intent)
            progress = self._catch_up(lease, progress)
            # Without a mark every stream has to be part of the window, so that all of them begin where the settings say.
            waits = [
                one
                for one in progress.waiting
                if one.window or (progress.mark and not parts.retries.is_due(one.stream))
            ]
            left_out = frozenset(one.stream for one in waits)
            self._warn(*(f"{one.stream} waits: {one.error}" for one in waits if one.stream not in self._own))
            plan = next_window(parts.source, progress.mark, lease.lease, self._run, left_out)
            progress = self._leave_refused(lease, progress, plan.refused, left_out)
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
        if self._own:
            first, *others = self._own.values()
            self._warn(*(error.message for error in others))
            return replace(self.failed(first), failed_streams=tuple(self._own))
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
        """Land the intent's window wherever it has not landed, then move the mark. The same for a first try and a recovery.

        Streams that fail by themselves keep their place, and wait for another try at this window.
        """
        parts = self._parts
        progress, intent, failed = self._land_everywhere(lease, progress, intent)
        self._tell_of_postponed()
        window = rest_of(parts.source, intent.window, failed)
        landings = tuple(landing for landing in intent.landed if landing.stream not in failed)
        finished = [] if intent.run == self._run else [f"finished what run {intent.run} began"]
        labels, without = labelled(window.end).note, [f"without {stream}" for stream in sorted(failed)]
        why = [*finished, *columns_learned(window.start, window.end), *([labels] if labels else []), *without]
        left = left_by(intent, failed)
        progress = self._advance(lease, progress.with_waiting(*left), window, window.end, landings=landings, why=why)
        for waiting in left:
            progress = self._leave(lease, progress, waiting, failed[waiting.stream], known="")
        return progress

    def _advance(
        self,
        lease: HeldLease,
        progress: Progress,
        window: Window,
        end: Mark,
        *,
        landings: Landings,
        why: Sequence[str],
    ) -> Progress:
        """Move the mark: every sink has given its landing (G1). `advanced` and the store both refuse to go back (G3)."""
        parts = self._parts
        parts.faults.reach("advance.before")
        done = CycleResult(parts.name, self._run, "landed", (window,), landings, time.monotonic() - self._began)
        learned = columns_learned(window.start, window.end)
        if learned:
            self._log("columns", changed="; ".join(learned))
        entry = done.entry(parts.owner, lease.lease.epoch, why="; ".join(why))
        progress = parts.store.swap(lease.lease, progress, progress.advanced(end), entry)
        parts.faults.reach("advance.after")
        self._result = replace(
            self._result,
            outcome="landed",
            windows=(*self._result.windows, window),
            landings=(*self._result.landings, *landings),
        )
        if isinstance(parts.source, Acknowledges):
            parts.faults.reach("acknowledge.before")
            parts.source.acknowledge(end)  # G10: the source may forget only now, so it comes last.
            parts.faults.reach("acknowledge.after")
        return progress

    def _land_everywhere(
        self, lease: HeldLease, progress: Progress, intent: Intent
    ) -> tuple[Progress, Intent, Mapping[str, HeadwaterError]]:
        parts, labels, lander = self._parts, labelled(intent.window.end).labels, Lander(self._parts, lease, self._run)

        def save(landed: Landings, left: int) -> None:
            nonlocal progress
            if left or labels:
                # A crash before the window is done is finished, not repeated, even where the sink cannot tell.
                wanted = progress.intending(replace(intent, landed=landed))
                progress = parts.store.swap(lease.lease, progress, wanted, None)

        attempt = lander.attempt_at(intent.window)
        known = intent.landed if intent.run != self._run else None
        landed = lander.land(attempt, intent.window, known, save)
        found = tag_tables(parts, attempt)
        if found.labels:
            self._log("labelled", labels=", ".join(found.labels), tables=len(found.streams))
            self._warn(*(f"label {', '.join(found.labels)}: no tag for {left}" for left in found.left_out))
        return progress, replace(intent, landed=landed), lander.failed

    def _catch_up(self, lease: HeldLease, progress: Progress) -> Progress:
        """Try streams again that wait, each over the window that went on without it."""
        parts = self._parts
        for waiting in progress.waiting:
            if waiting.window is None or not parts.retries.is_due(waiting.stream):
                continue
            self._log("trying again", stream=waiting.stream, window=waiting.window, since=waiting.since)
            tried = try_again(parts, lease, self._run, progress, waiting)
            if tried.error:
                progress = self._leave(lease, tried.progress, tried.waiting, tried.error, known=waiting.error)
                continue
            end = tried.progress.mark.join(tried.part.end) if tried.progress.mark else tried.part.end
            why = [f"{waiting.stream} had waited since {waiting.since:%Y-%m-%d %H:%M:%S}"]
            caught_up = tried.progress.without_waiting(waiting.stream)
            progress = self._advance(lease, caught_up, tried.part, end, landings=tried.waiting.landed, why=why)
            parts.retries.done(waiting.stream)
        return progress

    def _leave(
        self, lease: HeldLease, progress: Progress, waiting: Waiting, error: HeadwaterError, known: str
    ) -> Progress:
        """The cycle has failed, but only this stream has to wait. What is `known` already is not put on record again."""
        parts = self._parts
        self._own[waiting.stream] = error
        parts.retries.failed(waiting.stream)
        self._log("stream failed", stream=waiting.stream, code=error.code, message=error.message)
        if error.message == known:
            return progress
        wanted = progress.with_waiting(replace(waiting, code=error.code, error=error.message))
        return parts.store.swap(lease.lease, progress, wanted, self._failure(lease, progress, error))

    def _leave_refused(
        self, lease: HeldLease, progress: Progress, refused: Mapping[str, HeadwaterError], left_out: frozenset[str]
    ) -> Progress:
        """Streams that the source refused before they were part of a window; those that it refuses no longer are mended."""
        known = {one.stream: one for one in progress.waiting if one.window is None}
        for stream, error in refused.items():
            waiting = known.get(stream) or Waiting(stream, dt.datetime.now(dt.UTC), "", "")
            progress = self._leave(lease, progress, waiting, error, known=waiting.error)
        mended = [stream for stream in known if stream not in refused and stream not in left_out]
        if mended:
            progress = self._parts.store.swap(lease.lease, progress, progress.without_waiting(*mended), None)
            for stream in mended:
                self._parts.retries.done(stream)
        return progress

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

    def _remember_failure(self, lease: HeldLease, error: HeadwaterError) -> None:
        """Put the failure on record, once: the same one repeated by every cycle would bury the rest."""
        parts = self._parts
        try:
            newest = parts.store.history(parts.name, 1)
            if newest and newest[0].kind == "failed" and newest[0].error == error.message:
                return
            progress = parts.store.load(parts.name)
            parts.store.swap(lease.lease, progress, progress, self._failure(lease, progress, error))
        except HeadwaterError as second:
            # The first error is the one to show; that it could not be recorded is said beside it.
            self._log("failure not recorded", reason=second.message)

    def _failure(self, lease: HeldLease, progress: Progress, error: HeadwaterError) -> HistoryEntry:
        return HistoryEntry(
            kind="failed",
            run=self._run,
            at=dt.datetime.now(dt.UTC),
            who=self._parts.owner,
            epoch=lease.lease.epoch,
            start=str(progress.mark or "the beginning"),
            end="",
            seconds=round(time.monotonic() - self._began, 3),
            error=error.message,
        )

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
