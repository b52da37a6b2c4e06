"""Every error a user can meet, as one tree; and suggestions for misspelt names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

# HeadwaterError
# ├── InputError            exit 2   what you wrote cannot be used
# │   ├── SettingsError              a settings file is wrong; lists every problem with file, line and path
# │   ├── UnknownName                no pipeline, stream, column or table of that name
# │   └── BadPosition                a rewind target that the mark's type cannot hold
# ├── EnvironmentFault      exit 3   what stands around is missing or unreachable
# │   ├── JavaMissing · JarsMissing
# │   └── StoreUnreachable · SourceUnreachable (SnapshotGone) · SinkUnreachable
# └── RunError              exit 1   the run failed
#     ├── LeaseHeld · LeaseLost      another process runs, or took over, the pipeline
#     ├── ProgressConflict · MarkMovedBack · StoreDamaged
#     ├── SourceChanged              the source is not the one that the mark was taken from, or lost data (G9)
#     ├── SlotOverBudget             a replication slot makes the server keep too much of its log
#     ├── ValueNotKept · TooManyRejects · NullCursor · AmbiguousKey · SchemaRefused
#     ├── PublishConflict            the target moved while we wrote; nothing was published
#     └── TransformFailed
#
# Each class says when a retry makes sense: `later` by itself, `operator` after an operator acted, `never`.
# Foreign exceptions are translated once, at the border where they appear.

Retry = Literal["never", "later", "operator"]


@dataclass(frozen=True)
class SettingsProblem:
    """One mistake in a settings file: where it is, what is wrong, what to write instead."""

    file: str
    line: int  # from 1; 0 when the problem is in no line of a file
    column: int
    path: str  # `source.sql.cursor`; empty for the file as a whole
    message: str

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return "  ".join(part for part in (location, self.path, self.message) if part)


def is_of_one_stream(error: HeadwaterError) -> bool:
    """Whether what went wrong with a stream is the matter of its rows, columns or target, and not of what all share."""
    return isinstance(error, RunError | InputError) and error.retry != "later"


class HeadwaterError(Exception):
    """What happened, where and with which values; `hint` says what to do about it."""

    code: ClassVar[str] = "headwater"
    retry: ClassVar[Retry] = "never"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers, test processes); the default loses the keyword.
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(cls: type[HeadwaterError], message: str, hint: str) -> HeadwaterError:
    return cls(message, hint=hint)


class InputError(HeadwaterError):
    """What the user wrote cannot be used."""

    code = "input"
    exit_code = 2


class SettingsError(InputError):
    """A settings file is wrong; the message lists every problem with file, line and path."""

    code = "settings"

    def __init__(self, message: str, *, hint: str = "", problems: tuple[SettingsProblem, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems  # the same, for machines


class UnknownName(InputError):
    """Nothing here has that name."""

    code = "unknown-name"


class BadPosition(InputError):
    """A rewind target that the mark's type cannot hold."""

    code = "bad-position"


class EnvironmentFault(HeadwaterError):
    """What stands around Headwater is missing or unreachable."""

    code = "environment"
    retry: ClassVar[Retry] = "later"
    exit_code = 3


class JavaMissing(EnvironmentFault):
    """No Java, or one that Spark cannot use."""

    code = "java"
    retry: ClassVar[Retry] = "operator"


class JarsMissing(EnvironmentFault):
    """The JVM libraries are not in the cache and could not be fetched."""

    code = "jars"


class StoreUnreachable(EnvironmentFault):
    """The progress store did not answer. Never read as 'no mark' (W3)."""

    code = "store-unreachable"


class SourceUnreachable(EnvironmentFault):
    """The source did not answer or refused us."""

    code = "source-unreachable"


class SnapshotGone(SourceUnreachable):
    """What was read in one snapshot of the source cannot be read to its end: it has to be read in another."""

    code = "snapshot-gone"


class SinkUnreachable(EnvironmentFault):
    """A sink, its catalog or its storage did not answer or refused us."""

    code = "sink-unreachable"


class RunError(HeadwaterError):
    """The run failed; the mark stands where it stood."""

    code = "run"


class LeaseHeld(RunError):
    """Another process runs this pipeline now."""

    code = "lease-held"
    retry: ClassVar[Retry] = "later"


class LeaseLost(RunError):
    """Our lease expired and was taken over; nothing more may be published (G4)."""

    code = "lease-lost"
    retry: ClassVar[Retry] = "later"


class ProgressConflict(RunError):
    """The progress changed since it was loaded."""

    code = "progress-conflict"
    retry: ClassVar[Retry] = "later"


class MarkMovedBack(RunError):
    """An advance would move the mark backwards (G3)."""

    code = "mark-moved-back"


class StoreDamaged(RunError):
    """The stored progress cannot be read. Never read as 'no mark' (W3)."""

    code = "store-damaged"
    retry: ClassVar[Retry] = "operator"


class SourceChanged(RunError):
    """The source is not what the mark was taken from, or no longer has what comes next (G9)."""

    code = "source-changed"
    retry: ClassVar[Retry] = "operator"


class SlotOverBudget(RunError):
    """A replication slot makes the server keep more of its log than `guard.budget`."""

    code = "slot-over-budget"
    retry: ClassVar[Retry] = "operator"


class ValueNotKept(RunError):
    """A value cannot be kept exactly in the target's type (G8)."""

    code = "value-not-kept"
    retry: ClassVar[Retry] = "operator"


class TooManyRejects(RunError):
    """A window has more rejects than `max_rejects` allows."""

    code = "too-many-rejects"
    retry: ClassVar[Retry] = "operator"


class NullCursor(RunError):
    """Rows without a cursor value, and the settings say to fail on them (G6)."""

    code = "null-cursor"
    retry: ClassVar[Retry] = "operator"


class AmbiguousKey(RunError):
    """The key does not name one row: it is NULL, or two rows share it and nothing orders them (G12)."""

    code = "ambiguous-key"
    retry: ClassVar[Retry] = "operator"


class SchemaRefused(RunError):
    """The target cannot take the source's columns without loss."""

    code = "schema-refused"
    retry: ClassVar[Retry] = "operator"


class PublishConflict(RunError):
    """The target moved while we wrote; nothing was published."""

    code = "publish-conflict"
    retry: ClassVar[Retry] = "later"


class TransformFailed(RunError):
    """The user's transform raised, or gave something that is no set of rows."""

    code = "transform"
    retry: ClassVar[Retry] = "operator"


def closest(name: str, known: Sequence[str], similarity: float = 0.6) -> str | None:
    """The known name that is most similar, without regard to case and hyphens; None if none is similar."""
    folded = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower().replace("-", "_"), folded, n=1, cutoff=similarity)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'cursor'?`, or nothing."""
    close = closest(name, known)
    return f"; did you mean '{close}'?" if close else ""
