"""Where a row stands, for readers who drop repeats: the same in every try at a window, in every process.

Databases give the rows of a window in no certain order, and cut it into other splits when the table has grown since;
so neither a row number nor a split's number is the same in a retry. The content is. A position is a digest of
pipeline, stream, window and the message's value:

- Two messages with one position hold the same row with the same content, so dropping one loses nothing.
- A row is written again under its old position, unless it changed in the source since the first try, or the
  pipeline's settings did (format, transform); then both versions are there, the newer one later in its partition.

Rows of one window that are equal in every column, which only a source without a primary key can have, are numbered:
`digest.1` is the second. Numbers are counted per task; in a window that several tasks send, the task's number comes
first (`digest-3.1`), so that equal rows of two tasks stay apart. Such a window that is cut otherwise in its retry has
other positions: without a primary key, and above `SMALL_WINDOW` rows, a crash can leave repeats with positions of
their own. Never the other way round: no two rows share a position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from headwater.sinks.sorted_once import sorted_once

_DIGEST_BYTES = 16
_SALT_BYTES = 16


@dataclass(frozen=True)
class PositionScheme:
    """How a landing's rows are told apart; sent to the tasks."""

    salt: bytes
    unique: bool  # no two rows are equal, as the source has a primary key and nothing stands between
    keyed: bool  # the same, unless a transform repeats rows: equal rows stand in one task at least

    def digest(self, value: bytes) -> str:
        """The position of a message whose row has no equal."""
        return hashlib.blake2b(value, digest_size=_DIGEST_BYTES, salt=self.salt).hexdigest()

    def positions_of(self, part: int | None) -> Positions:
        """For one task; without a number, for the only one."""
        return Positions(self, part)


def scheme_for(pipeline: str, stream: str, window: str, *, unique: bool, keyed: bool) -> PositionScheme:
    named = f"{pipeline}\x00{stream}\x00{window}".encode()
    salt = hashlib.blake2b(named, digest_size=_SALT_BYTES).digest()
    return PositionScheme(salt, unique, keyed)


class Positions:
    """The positions of one task's messages, in the order in which they are asked for."""

    def __init__(self, scheme: PositionScheme, part: int | None) -> None:
        self._digest = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES, salt=scheme.salt)
        self._equals = None if scheme.unique else _Equals()
        self._suffix = "" if part is None or scheme.keyed else f"-{part}"

    def __call__(self, values: Sequence[bytes]) -> list[str]:
        digest, suffix = self._digest, self._suffix
        if self._equals is None:
            return [digest(value).hexdigest() for value in values]
        digests = [digest(value).digest() for value in values]
        made = [f"{one.hex()}{suffix}" for one in digests]
        for place, before in self._equals.numbered(digests):
            made[place] += f".{before}"
        return made


class _Equals:
    """Which rows had an equal before, and how many. A task may hold millions, so eight bytes are kept of each."""

    def __init__(self) -> None:
        self._seen: list[npt.NDArray[np.uint64]] = []  # sorted each
        self._counts: dict[bytes, int] = {}  # of the few that look as if they had an equal

    def numbered(self, digests: Sequence[bytes]) -> list[tuple[int, int]]:
        """Where a row with equals stands, and how many came before it."""
        if not digests:
            return []
        short = np.frombuffer(b"".join(digests), np.uint64)[:: _DIGEST_BYTES // 8]
        unique, inverse, often = np.unique(short, return_inverse=True, return_counts=True)
        known = self._known(short)
        self._remember(unique)
        found = []
        for place in np.flatnonzero(known | (often[inverse] > 1)).tolist():
            digest = digests[place]
            before = self._counts.get(digest, int(known[place]))
            self._counts[digest] = before + 1
            if before:
                found.append((place, before))
        return found

    def _known(self, short: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        known = np.zeros(len(short), np.bool_)
        for run in self._seen:
            places = np.minimum(np.searchsorted(run, short), len(run) - 1)
            known |= run[places] == short
        return known

    def _remember(self, run: npt.NDArray[np.uint64]) -> None:
        # Runs of about one length are merged, so that there are few of them and each is moved seldom.
        while self._seen and len(self._seen[-1]) < 2 * len(run):
            run = sorted_once(self._seen.pop(), run)
        self._seen.append(run)
