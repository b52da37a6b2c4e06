"""Which objects of a bucket or a folder are read: `pattern`, `ignore`, `recursive`, `min_age`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headwater.config.objects_source import ObjectsSource
from headwater.model.errors import InputError
from headwater.sources.objects.columns import integer
from headwater.sources.objects.patterns import depth, literal_prefix, to_regex

if TYPE_CHECKING:
    import pyarrow as pa

_EVERYTHING = "**"


@dataclass(frozen=True)
class Selection:
    """Pure: keys and times in, what is left of them out."""

    below: str  # what every key begins with: `prefix/`, or nothing
    pattern: str
    ignore: tuple[str, ...]
    recursive: bool
    min_age: int  # microseconds

    @classmethod
    def of(cls, settings: ObjectsSource, below: str) -> Selection:
        for pattern in (settings.pattern, *settings.ignore):
            to_regex(pattern)  # G12: what it refuses is refused before anything runs
        selection = cls(
            below,
            settings.pattern,
            tuple(settings.ignore),
            settings.recursive,
            round(settings.min_age.total_seconds() * 1e6),
        )
        if not settings.recursive and "/" in literal_prefix(settings.pattern):
            raise InputError(
                f"pattern {settings.pattern!r} selects nothing without folders below url (recursive: false)",
                hint="write the folder into url, or leave recursive out",
            )
        return selection

    @cached_property
    def prefix(self) -> str:
        """What every selected key begins with."""
        return self.below + literal_prefix(self.pattern)

    @cached_property
    def depth(self) -> int | None:
        """How many folders below `below` a selected object can lie in at most; None: any number."""
        return depth(self.pattern) if self.recursive else 0

    def includes(self, key: str) -> bool:
        """Whether an object of that key is selected, however old it is."""
        return (
            key.startswith(self.below)
            and (self.recursive or "/" not in key[len(self.below) :])
            and (self.pattern == _EVERYTHING or re.fullmatch(self._pattern_regex, key) is not None)
            and not (self.ignore and re.fullmatch(self._ignore_regex, key))
        )

    def enters(self, folder: str) -> bool:
        """Whether selected objects can lie in a folder; its key ends with `/`."""
        levels = folder.count("/", len(self.below))
        return (
            (self.depth is None or levels <= self.depth)
            and (folder.startswith(self.prefix) or self.prefix.startswith(folder))
            and not (self.ignore and re.fullmatch(self._ignore_regex, folder[:-1]))
        )

    def keep(self, page: pa.RecordBatch, now: int) -> pa.RecordBatch:
        """The selected rows of a page of a listing; `now` in microseconds since 1970 by the store's clock."""
        import pyarrow.compute as pc  # noqa: PLC0415 - loaded with the first page

        conditions = []
        if self.pattern != _EVERYTHING:
            conditions.append(pc.match_substring_regex(page["key"], _whole(self._pattern_regex)))
        if self.ignore:
            conditions.append(pc.invert(pc.match_substring_regex(page["key"], _whole(self._ignore_regex))))
        if not self.recursive:
            conditions.append(pc.match_substring_regex(page["key"], _whole(re.escape(self.below) + "[^/]*")))
        if self.min_age:
            conditions.append(pc.less_equal(page["modified"], integer(now - self.min_age)))
        for condition in conditions[1:]:
            conditions[0] = pc.and_(conditions[0], condition)
        return page.filter(conditions[0]) if conditions else page

    @cached_property
    def _pattern_regex(self) -> str:
        return "(?s)" + re.escape(self.below) + to_regex(self.pattern)

    @cached_property
    def _ignore_regex(self) -> str:
        # A folder that is ignored is so with all that is in it: `**/_*` hides _temporary/0/part.json too.
        return "(?s)" + re.escape(self.below) + "(?:" + "|".join(map(to_regex, self.ignore)) + ")(?:/.*)?"


def _whole(expression: str) -> str:
    """For RE2, which looks for an expression anywhere."""
    return r"\A(?:" + expression + r")\z"
