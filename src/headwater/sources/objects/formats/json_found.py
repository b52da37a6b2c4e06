"""What kinds of values the fields of JSON objects have."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.sources.json.found import Kinds, observe
from headwater.sources.json.guessed import guessed_kinds
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.formats.json_elements import elements, is_lines
from headwater.sources.objects.formats.json_lines import JoinedLines, joined_lines
from headwater.sources.objects.formats.lines import chunks, unmarked


def json_kinds(contents: Sequence[Content], as_: str, large: int) -> Kinds:
    """Of all fields, in the order in which they appear. What cannot be read brings none."""
    kinds: Kinds = {}
    together: list[bytes] = []
    for content in contents:
        if len(content) > large and (as_ == "lines" or (as_ == "auto" and is_lines(content))):
            for number, chunk in enumerate(chunks(content)):
                _observe([chunk if number else unmarked(chunk)], "lines", kinds)
        else:
            together.append(unmarked(content[:]))
    _observe(together, as_, kinds)
    return kinds


def _observe(texts: Sequence[bytes], as_: str, kinds: Kinds) -> None:
    if not texts:
        return
    if as_ == "document":
        for text in texts:
            _closer(text, as_, kinds)
        return
    found = joined_lines(texts)
    _by_halves(found, range(len(texts)), as_, kinds)


def _by_halves(found: JoinedLines, some: range, as_: str, kinds: Kinds) -> None:
    if not set(some) & set(found.odd):
        joined = found.joined if len(some) == len(found.ended) else b"".join(found.ended[some.start : some.stop])
        guessed = guessed_kinds(joined, int(found.lines[some.start : some.stop].sum()))
        if guessed is not None:
            for name, seen in guessed.items():
                kinds.setdefault(name, set()).update(seen)
            return
    if len(some) == 1:
        _closer(found.ended[some.start], as_, kinds)
        return
    middle = len(some) // 2
    _by_halves(found, some[:middle], as_, kinds)
    _by_halves(found, some[middle:], as_, kinds)


def _closer(text: bytes, as_: str, kinds: Kinds) -> None:
    try:
        observe((value for _, value in elements(text, as_)), kinds)
    except ObjectFailed:
        return  # it fails when it is read, and says so
