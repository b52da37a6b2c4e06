"""What the engine tells while it works: lower-case events with fields, never a row's values, never a secret (G11)."""

from __future__ import annotations

from typing import Protocol


class Log(Protocol):
    """Receives every event of every pipeline, from several threads."""

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        """One thing that happened."""

    def rows(self, pipeline: str, count: int) -> None:
        """So many more rows were written: for a progress display."""


class Silence:
    """A log that keeps nothing."""

    def event(self, pipeline: str, event: str, **fields: object) -> None:
        """Drop it."""

    def rows(self, pipeline: str, count: int) -> None:
        """Drop it."""
