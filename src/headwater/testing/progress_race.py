"""Many processes that count one mark up, one step a cycle, and the proof that no step was lost or doubled."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

from headwater.model.errors import LeaseHeld, LeaseLost
from headwater.model.position.marks import ColumnMark
from headwater.model.position.window import Window
from headwater.model.progress import HistoryEntry, Intent, Lease, Progress
from headwater.model.protocols.store import Store
from headwater.model.types import CursorType

OpenStore = Callable[[], Store]  # has to be picklable: every process opens the store for itself

# Forking is safe and quick from a process that does nothing else: see `main`.
_forking = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Race:
    """What is run: `processes` count `pipeline` up to `goal`; every now and then one is killed and replaced."""

    open_store: OpenStore
    folder: Path  # where the processes note what was acknowledged to them
    goal: int
    processes: int = 8
    pipeline: str = "race"
    ttl_seconds: float = 30.0
    seed: int = 1
    kill_every_seconds: float | None = None
    timeout_seconds: float = 120.0


@dataclass(frozen=True)
class Outcome:
    """The result, for reports."""

    seconds: float
    kills: int
    acknowledged: int


def run_race(race: Race) -> Outcome:
    """Run it to the end and check every promise; raises AssertionError with what was broken."""
    started = time.monotonic()
    kills = _run_crowd(race)
    seconds = time.monotonic() - started
    noted = [int(line) for path in race.folder.glob("*.noted") for line in path.read_text().splitlines()]
    store = race.open_store()
    try:
        _check(race, store, noted, kills)
    finally:
        store.close()
    return Outcome(seconds, kills, len(noted))


def _run_crowd(race: Race) -> int:
    command = [sys.executable, "-c", "from headwater.testing.progress_race import main; main()"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.run(command, input=pickle.dumps(race), stdout=subprocess.PIPE, env=environment, check=False)
    assert process.returncode == 0, "the race failed; the reason is in stderr"
    return int(process.stdout)


def main() -> None:
    """Run the race that comes in through stdin; print how many processes were killed."""
    race = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by `_run_crowd`
    sys.stdout.write(str(_Crowd(race).run()))


def _check(race: Race, store: Store, noted: list[int], kills: int) -> None:
    progress = store.load(race.pipeline)
    steps = list(range(1, race.goal + 1))
    assert _value(progress) == race.goal, f"the mark is {progress.mark}, not {race.goal}"
    assert progress.intent is None
    assert progress.version == 2 * race.goal, "each step is one intent and one advance"
    entries = list(reversed(store.history(race.pipeline, race.goal + 10)))
    assert [entry.end for entry in entries] == [str(_mark(step)) for step in steps], "the history has gaps"
    assert [entry.start for entry in entries] == [str(_mark(step - 1)) for step in steps]
    epochs = [entry.epoch for entry in entries]
    assert epochs == sorted(epochs), "an older lease wrote after a newer one (G4)"
    assert len(set(noted)) == len(noted), "one step was acknowledged to two processes"
    # A process that is killed between the store's answer and its note leaves no note, never a wrong one.
    assert set(noted) <= set(steps)
    assert race.goal - len(noted) <= kills


class _Crowd:
    """The processes of a race."""

    def __init__(self, race: Race) -> None:
        self._race = race
        self._chance = random.Random(race.seed)  # noqa: S311 - repeatable on purpose
        self._started = 0
        self._members: list[ForkProcess] = []

    def run(self) -> int:
        race = self._race
        deadline, parent = time.monotonic() + race.timeout_seconds, os.getppid()
        kills, next_kill = 0, self._pause()
        try:
            self._members = [self._start() for _ in range(race.processes)]
            while any(member.is_alive() for member in self._members):
                assert os.getppid() == parent, "the parent of the race is gone"
                assert time.monotonic() < deadline, f"the race took longer than {race.timeout_seconds} s"
                self._members[0].join(0.05)
                self._check_ends()
                if time.monotonic() > next_kill and self._kill_one():
                    kills, next_kill = kills + 1, self._pause()
                self._members.sort(key=lambda member: not member.is_alive())
            self._check_ends()
        finally:
            for member in self._members:
                if member.is_alive():
                    member.kill()
                    member.join()
        return kills

    def _pause(self) -> float:
        every = self._race.kill_every_seconds
        return float("inf") if every is None else time.monotonic() + self._chance.uniform(0.2, 1.8) * every

    def _start(self) -> ForkProcess:
        self._started += 1
        member = _forking.Process(target=count_up, args=(self._race, self._started), daemon=True)
        member.start()
        return member

    def _kill_one(self) -> bool:
        working = [member for member in self._members if member.is_alive()]
        # Who has reached the goal is not replaced, so only a full crowd is thinned out.
        if len(working) < self._race.processes:
            return False
        victim = self._chance.choice(working)
        victim.kill()
        victim.join()
        self._members.remove(victim)
        self._members.append(self._start())
        return True

    def _check_ends(self) -> None:
        for member in self._members:
            assert member.exitcode in (None, 0, -signal.SIGKILL), "a process failed; its traceback is in stderr"


def count_up(race: Race, number: int) -> None:
    """One process: take the lease, finish or begin a step, give the lease back, until the goal is reached."""
    store, chance = race.open_store(), random.Random(race.seed * 1000 + number)  # noqa: S311 - repeatable on purpose
    highest, parent = 0, os.getppid()
    with (race.folder / f"{number}.noted").open("ab", buffering=0) as note:
        while highest < race.goal and os.getppid() == parent:
            try:
                lease = store.acquire(race.pipeline, f"process {number}", race.ttl_seconds)
            except LeaseHeld:
                time.sleep(chance.uniform(0.005, 0.05))  # waiters that ask too often slow the worker down
                continue
            try:
                value = _value(store.load(race.pipeline))
                assert value >= highest, f"the mark went back from {highest} to {value} (G3)"
                highest = value if value >= race.goal else _step(store, lease, note.write)
            except LeaseLost:
                continue  # too slow; another process took over
            store.release(lease)
    store.close()


def _step(store: Store, lease: Lease, note: Callable[[bytes], object]) -> int:
    progress = store.load(lease.pipeline)
    value = _value(progress)
    if progress.intent is None:
        window = Window(_mark(value), _mark(value + 1))
        intent = Intent(run=f"{lease.owner}, epoch {lease.epoch}", window=window, begun_at=_now())
        progress = store.swap(lease, progress, progress.intending(intent), None)
    assert progress.intent is not None
    window = progress.intent.window
    assert (window.start, window.end) == (_mark(value), _mark(value + 1)), "the intent is not the next step (G5)"
    entry = HistoryEntry(
        kind="landed",
        run=progress.intent.run,
        at=_now(),
        who=lease.owner,
        epoch=lease.epoch,
        start=str(window.start),
        end=str(window.end),
        rows=1,
    )
    stored = store.swap(lease, progress, progress.advanced(window.end), entry)
    note(f"{value + 1}\n".encode())
    return _value(stored)


def _mark(value: int) -> ColumnMark:
    return ColumnMark("step", CursorType.INTEGER, value)


def _value(progress: Progress) -> int:
    assert progress.mark is None or isinstance(progress.mark, ColumnMark)
    return int(str(progress.mark.value)) if progress.mark else 0


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
