"""Names as users write them: `schema.table`, `"Odd.Schema"."Table"`, `sales.*`; the tables they choose, and the nearest to a wrong one."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.model.errors import InputError, UnknownName

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
        f"{text!r} is not the name of a table", hint='write schema.table, with quotes where needed: "My.Schema".t'
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


_SETTING = re.compile(r'(?P<name>(?:[^"=]|"(?:[^"]|"")*")+)=(?P<value>.*)', re.DOTALL)


@dataclass(frozen=True)
class ListedRelation:
    """A relation as the catalog lists it."""

    oid: int
    schema: str
    name: str
    kind: str = "r"  # pg_class.relkind
    is_partition: bool = False
    visible: bool = False  # without its schema
    identity: str = "d"  # pg_class.relreplident

    @property
    def is_table(self) -> bool:
        """A whole table: a pattern of `postgres check` and `prepare` matches neither partitions nor views."""
        return self.kind in ("r", "p") and not self.is_partition

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def choose_tables(listed: Sequence[ListedRelation], written: Sequence[str], excluded: Sequence[str]) -> list[int]:
    """The oids of the tables, each once, in the order written. Raises UnknownName with the nearest name."""
    left_out = {oid for text in excluded for oid in _matches(listed, text)}
    matches = dict.fromkeys(oid for text in written for oid in _matches(listed, text))
    return [oid for oid in matches if oid not in left_out]


def _matches(listed: Sequence[ListedRelation], text: str) -> list[int]:
    # In quotes every sign is a letter of the name.
    if is_pattern(text) and '"' not in text:
        tables = {(relation.schema, relation.name): relation.oid for relation in listed if relation.is_table}
        names = matching(text, tables, "public")
        if not names:
            schemas = sorted({f"{schema}.*" for schema, _ in tables})
            raise UnknownName(f"no table matches {text!r}", hint=did_you_mean(text, schemas))
        return [tables[name] for name in names]
    parts = split_name(text)
    for relation in listed:
        if relation.name == parts[-1] and (relation.visible if len(parts) == 1 else relation.schema == parts[0]):
            return [relation.oid]
    known = [relation.full_name for relation in listed]
    raise UnknownName(f"table {text} does not exist", hint=did_you_mean(text, known))


def split_setting(text: str) -> tuple[str | None, str]:
    """`TABLE=VALUE` → both; a text without a name → None and the text. In quotes a = belongs to the name."""
    match = _SETTING.fullmatch(text)
    return (match["name"].strip(), match["value"].strip()) if match else (None, text.strip())
