"""Unfinished windows that can no longer be read are given up: the next one brings what they held, in its place."""

from __future__ import annotations

import datetime as dt

from headwater.model.progress import HistoryEntry, Intent, Lease, Progress
from headwater.model.source import Abandons, Source
from headwater.model.store import Store


def why_abandoned(source: Source, intent: Intent) -> str:
    """Why the intent's window cannot be finished; empty: it can."""
    return source.abandoned(intent.window) if isinstance(source, Abandons) else ""


def abandon(store: Store, lease: Lease, progress: Progress, *, run: str, who: str, why: str) -> Progress:
    """Give the intent up, on record. The mark stays where it is (G1)."""
    window = progress.intent.window if progress.intent else None
    entry = HistoryEntry(
        kind="abandoned",
        run=run,
        at=dt.datetime.now(dt.UTC),
        who=who,
        epoch=lease.epoch,
        start=str(window.start if window and window.start else "the beginning"),
        end=str(window.end) if window else "",
        why=why,
    )
    return store.swap(lease, progress, progress.abandoned(), entry)
