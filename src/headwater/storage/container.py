"""A container of objects, a bucket or a folder: list it, read one version of an object, select by `pattern`, `ignore`, `recursive`, `min_age`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of a listing; `modified` in microseconds since 1970, UTC.
LISTING_COLUMNS = {"key": "string", "etag": "string", "size": "int64", "modified": "int64"}


@dataclass(frozen=True)
class ObjectVersion:
    """An object as a listing showed it."""

    key: str  # in a bucket: the whole key. In a folder: the path below it
    etag: str
    size: int
    modified: int  # microseconds since 1970, UTC


class ObjectGone(Exception):
    """The object was deleted."""


class ObjectChanged(Exception):
    """The object has another version than the listed one: the next listing shows it."""


class ObjectRefused(Exception):
    """The store refuses to return the object: archived, encrypted with another key, or forbidden for these credentials."""


class Container(Protocol):
    """A bucket's prefix, or a folder. Picklable, `repr` without secrets (G11): tasks carry it along.

    Raises SourceUnreachable when the store does not answer, InputError when the settings are wrong.
    """

    @property
    def address(self) -> str:
        """Its url, without secrets."""

    def url(self, key: str) -> str:
        """The object's url as a person would write it: `s3://bucket/a b.json`, nothing escaped."""

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        """The objects that the patterns select, as LISTING_COLUMNS, strictly ascending by the keys' UTF-8 bytes."""

    def stat(self, key: str) -> ObjectVersion | None:
        """One object as a listing would show it; None: it does not exist, or the patterns do not select it."""

    def without_min_age(self) -> Container:
        """The same container, with objects that are still too young to be read."""

    def fetch(self, version: ObjectVersion) -> bytes:
        """The whole content. Raises ObjectGone, ObjectChanged, ObjectRefused."""

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        """The bytes from `start` up to, not including, `end`."""


def texts(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish()


def integers(values: Iterable[int]) -> pa.Array:
    import pyarrow as pa

    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def integer(value: int) -> pa.Scalar:
    return integers([value])[0]


def listing_page(keys: Sequence[str], etags: Sequence[str], sizes: Iterable[int], modified: pa.Array) -> pa.RecordBatch:
    """A page with LISTING_COLUMNS."""
    import pyarrow as pa

    columns = {"key": texts(keys), "etag": texts(etags), "size": integers(sizes), "modified": modified}
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


_EVERYTHING = "**"


@dataclass(frozen=True)
class Selection:
    """Pure: decides by keys and times alone."""

    root: str  # prefix of every key of the container: `prefix/`, or empty
    pattern: str
    ignore: tuple[str, ...]
    recursive: bool
    min_age: int  # microseconds

    @classmethod
    def of(cls, settings: ObjectsSourceSettings, root: str) -> Selection:
        for pattern in (settings.pattern, *settings.ignore):
            to_regex(pattern)  # G12: refused before anything runs
        selection = cls(
            root,
            settings.pattern,
            tuple(settings.ignore),
            settings.recursive,
            round(settings.min_age.total_seconds() * 1e6),
        )
        if not settings.recursive and "/" in literal_prefix(settings.pattern):
            raise InputError(
                f"pattern {settings.pattern!r} selects nothing without folders below url (recursive: false)",
                hint="add the folder to url, or remove recursive",
            )
        return selection

    @cached_property
    def prefix(self) -> str:
        """The prefix of every selected key."""
        return self.root + literal_prefix(self.pattern)

    @cached_property
    def depth(self) -> int | None:
        """The most folders between `root` and a selected object; None: any number."""
        return depth(self.pattern) if self.recursive else 0

    def includes(self, key: str) -> bool:
        """True if the key is selected, whatever the object's age."""
        return (
            key.startswith(self.root)
            and (self.recursive or "/" not in key[len(self.root) :])
            and (self.pattern == _EVERYTHING or re.fullmatch(self._pattern_regex, key) is not None)
            and not (self.ignore and re.fullmatch(self._ignore_regex, key))
        )

    def may_contain(self, folder: str) -> bool:
        """True if a folder may contain selected objects; its key ends with `/`."""
        levels = folder.count("/", len(self.root))
        return (
            (self.depth is None or levels <= self.depth)
            and (folder.startswith(self.prefix) or self.prefix.startswith(folder))
            and not (self.ignore and re.fullmatch(self._ignore_regex, folder[:-1]))
        )

    def select(self, page: pa.RecordBatch, now: int) -> pa.RecordBatch:
        """The selected rows of a page of a listing; `now` in microseconds since 1970 by the store's clock."""
        import pyarrow.compute as pc

        conditions = []
        if self.pattern != _EVERYTHING:
            conditions.append(pc.match_substring_regex(page["key"], _anchored(self._pattern_regex)))
        if self.ignore:
            conditions.append(pc.invert(pc.match_substring_regex(page["key"], _anchored(self._ignore_regex))))
        if not self.recursive:
            conditions.append(pc.match_substring_regex(page["key"], _anchored(re.escape(self.root) + "[^/]*")))
        if self.min_age:
            conditions.append(pc.less_equal(page["modified"], integer(now - self.min_age)))
        for condition in conditions[1:]:
            conditions[0] = pc.and_(conditions[0], condition)
        return page.filter(conditions[0]) if conditions else page

    @cached_property
    def _pattern_regex(self) -> str:
        return "(?s)" + re.escape(self.root) + to_regex(self.pattern)

    @cached_property
    def _ignore_regex(self) -> str:
        # An ignored folder hides everything in it: `**/_*` hides _temporary/0/part.json too.
        return "(?s)" + re.escape(self.root) + "(?:" + "|".join(map(to_regex, self.ignore)) + ")(?:/.*)?"


def _anchored(expression: str) -> str:
    """For RE2, which searches the expression anywhere in a text."""
    return r"\A(?:" + expression + r")\z"


_MAX_ALTERNATIVES = 1000
_SPECIAL = re.compile(r"[*?\[{]")
_STARS = re.compile(r"\*\*+")


def to_regex(pattern: str) -> str:
    """An expression that a whole key must match."""
    return "(?:" + "|".join(_regex_of(alternative, pattern) for alternative in expand(pattern)) + ")"


def literal_prefix(pattern: str) -> str:
    """The prefix of every key that matches."""
    return pattern[: special.start()] if (special := _SPECIAL.search(pattern)) else pattern


def depth(pattern: str) -> int | None:
    """The most nested folders that a match can have; None: any number."""
    alternatives = expand(pattern)
    if any(_STARS.search(alternative) for alternative in alternatives):
        return None
    return max(alternative.count("/") for alternative in alternatives)


def expand(pattern: str) -> list[str]:
    """`{a,b}c` → `ac`, `bc`."""
    prefixes = [""]
    position = 0
    while position < len(pattern):
        if pattern[position] == "{":
            choices, position = _choices(pattern, position)
            inner = [text for choice in choices for text in expand(choice)]
        elif pattern[position] == "[":
            end = _class_end(pattern, position)
            inner, position = [pattern[position:end]], end
        else:
            inner, position = [pattern[position]], position + 1
        prefixes = [before + text for before in prefixes for text in inner]
        if len(prefixes) > _MAX_ALTERNATIVES:
            raise _bad_pattern(pattern, f"expands to more than {_MAX_ALTERNATIVES:,} patterns; use fewer braces")
    return prefixes


def _choices(pattern: str, start: int) -> tuple[list[str], int]:
    """The alternatives of the brace at `start`, and the position after it."""
    nested, begin, choices = 0, start + 1, []
    position = start
    while position < len(pattern):
        character = pattern[position]
        if character == "[":
            position = _class_end(pattern, position)
            continue
        nested += {"{": 1, "}": -1}.get(character, 0)
        if nested == 0 or (nested == 1 and character == ","):
            choices.append(pattern[begin:position])
            begin = position + 1
        if nested == 0:
            return choices, position + 1
        position += 1
    raise _bad_pattern(pattern, "a { has no }; for the character itself use [{]")


def _class_end(pattern: str, start: int) -> int:
    """The position after the class at `start`. A `]` in the first place is a member."""
    first = start + 1 + (pattern[start + 1 : start + 2] in ("!", "^"))
    end = pattern.find("]", first + 1)
    if end < 0:
        raise _bad_pattern(pattern, "a [ has no ]; for the character itself use [[]")
    return end + 1


def _regex_of(pattern: str, full_pattern: str) -> str:
    expressions: list[str] = []
    position = 0
    while position < len(pattern):
        stars = _STARS.match(pattern, position)
        character = pattern[position]
        if stars:
            position = stars.end()
            is_first = stars.start() == 0 or pattern[stars.start() - 1] == "/"
            if is_first and pattern[position : position + 1] == "/":
                expressions.append("(?:.*/)?")  # `**/x` is `x` in this folder too
                position += 1
            else:
                expressions.append(".*")
        elif character == "[":
            end = _class_end(pattern, position)
            expressions.append(_class(pattern[position + 1 : end - 1], full_pattern))
            position = end
        else:
            expressions.append({"*": "[^/]*", "?": "[^/]"}.get(character) or re.escape(character))
            position += 1
    return "".join(expressions)


def _class(members: str, full_pattern: str) -> str:
    negated = members[0] in "!^"
    ranges = _ranges(members[negated:], full_pattern)
    if negated:
        return "[^/" + "".join(f"{_member(low)}-{_member(high)}" for low, high in ranges) + "]"
    # A class never matches `/`: a range around it is cut into two halves without it.
    halves = [half for low, high in ranges for half in ((low, min(high, ".")), (max(low, "0"), high))]
    ranges_without_slash = [f"{_member(low)}-{_member(high)}" for low, high in dict.fromkeys(halves) if low <= high]
    if not ranges_without_slash:
        raise _bad_pattern(full_pattern, "[/] matches nothing; move / out of the brackets")
    return "[" + "".join(ranges_without_slash) + "]"


def _ranges(members: str, full_pattern: str) -> list[tuple[str, str]]:
    ranges = []
    position = 0
    while position < len(members):
        low = high = members[position]
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            high = members[position + 2]
            position += 2
        if low > high:
            raise _bad_pattern(full_pattern, f"[{low}-{high}] is not a range")
        ranges.append((low, high))
        position += 1
    return ranges


def _member(character: str) -> str:
    return "\\" + character if character in "\\]^[-" else character


def _bad_pattern(pattern: str, problem: str) -> InputError:
    return InputError(f"pattern {pattern!r}: {problem}")
