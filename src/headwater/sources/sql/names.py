"""Names as users write them: `schema.table`, `"Odd.Schema"."Table"`, `sales.*`, and the nearest to a wrong one."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence

from headwater.model.errors import InputError

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_DEEPEST = 2


def split_name(text: str) -> tuple[str, ...]:
    """The parts of a table's name. A name is taken exactly as written; quotes allow dots in it."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        found = _PART.match(text, position)
        if not found:
            break
        parts.append(found[1].replace('""', '"') if found[1] else found[2].strip())
        position = found.end()
        if position < len(text) and text[position] == ".":
            position += 1
            if position == len(text):
                break
        elif position < len(text):
            break
    else:
        if 0 < len(parts) <= _DEEPEST:
            return tuple(parts)
    raise InputError(
        f"{text!r} is no name of a table", hint='write schema.table, with quotes where needed: "My.Schema".t'
    )


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def matching(pattern: str, names: Iterable[tuple[str, str]], default_schema: str) -> list[tuple[str, str]]:
    """The (schema, table) pairs that a pattern names; without a dot it is about the default schema."""
    schema, _, table = pattern.rpartition(".")
    schema = schema or default_schema
    return [
        (found_schema, found_table)
        for found_schema, found_table in names
        if fnmatch.fnmatchcase(found_schema, schema) and fnmatch.fnmatchcase(found_table, table)
    ]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A hint with the nearest names, or with the first few there are."""
    # A table may be named without its schema.
    folded = {(candidate if "." in name else candidate.rpartition(".")[2]).lower(): candidate for candidate in known}
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = ", ".join(sorted(known)[:10])
    return f"there are: {shown}{', …' if len(known) > 10 else ''}" if known else "there are none"  # noqa: PLR2004
