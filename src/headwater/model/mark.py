"""What every mark promises. The kinds of marks are in marks.py and lsn_mark.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

Json = Any  # what the json module reads and writes


class Mark(ABC):
    """One kind of position; every kind keeps the laws that `headwater.testing.marks` checks."""

    kind: ClassVar[str]

    def comparable(self, other: Mark) -> bool:
        """Whether `join` and `covers` make sense between the two: marks of one kind, of one column."""
        return type(self) is type(other)

    @abstractmethod
    def join(self, other: Self) -> Self:
        """The smallest mark of this kind that is at or past both."""

    @abstractmethod
    def covers(self, other: Self) -> bool:
        """True when this mark stands at or past `other`."""

    @abstractmethod
    def to_json(self) -> dict[str, Json]:
        """A JSON object with `kind` and `version`; `mark_from_json` reads it back, equal."""

    @abstractmethod
    def __str__(self) -> str:
        """A short text for people."""
