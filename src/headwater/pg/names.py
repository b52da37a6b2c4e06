"""Names as users write them: `schema.table`, `"Odd.Schema"."Table"`, `sales.*`; the tables they choose, and the nearest to a wrong one."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.model.errors import InputError, UnknownName

_IDENTIFIER = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')
_MAX_IDENTIFIERS = 2


def split_name(text: str) -> tuple[str, ...]:
    """The identifiers of a table's name, exactly as written; quotes allow dots in them."""
    identifiers: list[str] = []
    position = 0
    while position < len(text):
        match = _IDENTIFIER.match(text, position)
        if not match:
            break
        identifiers.append(match[1].replace('""', '"') if match[1] else match[2].strip())
        position = match.end()
        if position < len(text) and text[position] == ".":
            position += 1
            if position == len(text):
                break
        elif position < len(text):
            break
    else:
        if 0 < len(identifiers) <= _MAX_IDENTIFIERS:
            return tuple(identifiers)
    raise InputError(
        f"{text!r} is not the name of a table", hint='write schema.table, with quotes where needed: "My.Schema".t'
    )


def is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def match_names(pattern: str, names: Iterable[tuple[str, str]], default_schema: str) -> list[tuple[str, str]]:
    """The (schema, table) pairs that a pattern matches; without a dot it is about the default schema."""
    schemas, _, tables = pattern.rpartition(".")
    schemas = schemas or default_schema
    return [
        (schema, table)
        for schema, table in names
        if fnmatch.fnmatchcase(schema, schemas) and fnmatch.fnmatchcase(table, tables)
    ]


def did_you_mean(name: str, candidates: Sequence[str]) -> str:
    """A hint with the nearest names, or with the first few candidates."""
    # A table may be named without its schema.
    folded = {
        (candidate if "." in name else candidate.rpartition(".")[2]).lower(): candidate for candidate in candidates
    }
    near = [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    first = ", ".join(sorted(candidates)[:10])
    return f"there are: {first}{', …' if len(candidates) > 10 else ''}" if candidates else "there are none"  # noqa: PLR2004


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


def choose_tables(relations: Sequence[ListedRelation], names: Sequence[str], excluded: Sequence[str]) -> list[int]:
    """The oids of the tables, each once, in the order written. Raises UnknownName with the nearest name."""
    excluded_oids = {oid for text in excluded for oid in _oids(relations, text)}
    oids = dict.fromkeys(oid for text in names for oid in _oids(relations, text))
    return [oid for oid in oids if oid not in excluded_oids]


def _oids(relations: Sequence[ListedRelation], text: str) -> list[int]:
    # In quotes * and ? are letters of the name.
    if is_pattern(text) and '"' not in text:
        tables = {(relation.schema, relation.name): relation.oid for relation in relations if relation.is_table}
        names = match_names(text, tables, "public")
        if not names:
            schemas = sorted({f"{schema}.*" for schema, _ in tables})
            raise UnknownName(f"no table matches {text!r}", hint=did_you_mean(text, schemas))
        return [tables[name] for name in names]
    identifiers = split_name(text)
    for relation in relations:
        if relation.name == identifiers[-1] and (
            relation.visible if len(identifiers) == 1 else relation.schema == identifiers[0]
        ):
            return [relation.oid]
    full_names = [relation.full_name for relation in relations]
    raise UnknownName(f"table {text} does not exist", hint=did_you_mean(text, full_names))


def split_setting(text: str) -> tuple[str | None, str]:
    """`TABLE=VALUE` → both; a text without a name → None and the text. In quotes a = belongs to the name."""
    match = _SETTING.fullmatch(text)
    return (match["name"].strip(), match["value"].strip()) if match else (None, text.strip())
