"""Patterns of keys: `*` and `?` within a folder, `**` across them, `[a-z]`, `{a,b}`. What they mean, as regular expressions.

The expressions use only what Python's `re` and RE2 (which Arrow filters whole pages with) read alike.
"""

from __future__ import annotations

import re

from headwater.model.errors import InputError

_MOST_ALTERNATIVES = 1000
_SPECIAL = re.compile(r"[*?\[{]")
_STARS = re.compile(r"\*\*+")


def to_regex(pattern: str) -> str:
    """An expression that a whole key must match."""
    return "(?:" + "|".join(_without_braces(alternative, pattern) for alternative in expand(pattern)) + ")"


def literal_prefix(pattern: str) -> str:
    """What every key that matches begins with."""
    return pattern[: found.start()] if (found := _SPECIAL.search(pattern)) else pattern


def depth(pattern: str) -> int | None:
    """In how many folders, one in another, a match can lie at most; None: in any number."""
    alternatives = expand(pattern)
    if any(_STARS.search(alternative) for alternative in alternatives):
        return None
    return max(alternative.count("/") for alternative in alternatives)


def expand(pattern: str) -> list[str]:
    """`{a,b}c` → `ac`, `bc`."""
    begun = [""]
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
        begun = [before + text for before in begun for text in inner]
        if len(begun) > _MOST_ALTERNATIVES:
            raise _wrong(pattern, f"stands for more than {_MOST_ALTERNATIVES:,} others; write fewer braces")
    return begun


def _choices(pattern: str, start: int) -> tuple[list[str], int]:
    """The texts between the commas of the brace at `start`, and where what follows it begins."""
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
    raise _wrong(pattern, "a { has no }; for the character itself write [{]")


def _class_end(pattern: str, start: int) -> int:
    """Where what follows the class that begins at `start` begins. A `]` that comes first is a member."""
    first = start + 1 + (pattern[start + 1 : start + 2] in ("!", "^"))
    end = pattern.find("]", first + 1)
    if end < 0:
        raise _wrong(pattern, "a [ has no ]; for the character itself write [[]")
    return end + 1


def _without_braces(pattern: str, whole: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        stars = _STARS.match(pattern, position)
        character = pattern[position]
        if stars:
            position = stars.end()
            begins = stars.start() == 0 or pattern[stars.start() - 1] == "/"
            if begins and pattern[position : position + 1] == "/":
                parts.append("(?:.*/)?")  # `**/x` is `x` in this folder too
                position += 1
            else:
                parts.append(".*")
        elif character == "[":
            end = _class_end(pattern, position)
            parts.append(_class(pattern[position + 1 : end - 1], whole))
            position = end
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(character) or re.escape(character))
            position += 1
    return "".join(parts)


def _class(members: str, whole: str) -> str:
    negated = members[0] in "!^"
    ranges = _ranges(members[negated:], whole)
    if negated:
        return "[^/" + "".join(f"{_member(low)}-{_member(high)}" for low, high in ranges) + "]"
    # A class never matches `/`; the two halves of a range that holds it do not hold it.
    halves = [half for low, high in ranges for half in ((low, min(high, ".")), (max(low, "0"), high))]
    found = [f"{_member(low)}-{_member(high)}" for low, high in dict.fromkeys(halves) if low <= high]
    if not found:
        raise _wrong(whole, "[/] matches nothing; write / outside of brackets")
    return "[" + "".join(found) + "]"


def _ranges(members: str, whole: str) -> list[tuple[str, str]]:
    ranges = []
    position = 0
    while position < len(members):
        low = high = members[position]
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            high = members[position + 2]
            position += 2
        if low > high:
            raise _wrong(whole, f"[{low}-{high}] is no range")
        ranges.append((low, high))
        position += 1
    return ranges


def _member(character: str) -> str:
    return "\\" + character if character in "\\]^[-" else character


def _wrong(pattern: str, what: str) -> InputError:
    return InputError(f"pattern {pattern!r}: {what}")
