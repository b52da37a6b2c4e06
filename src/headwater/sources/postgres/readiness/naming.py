"""From the names and patterns that a user wrote to tables of the database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.model.errors import UnknownName
from headwater.sources.sql.names import did_you_mean, is_pattern, matching, split_name

_SETTING = re.compile(r'(?P<name>(?:[^"=]|"(?:[^"]|"")*")+)=(?P<value>.*)', re.DOTALL)


@dataclass(frozen=True)
class Listed:
    """A relation as the catalog lists it."""

    oid: int
    schema: str
    name: str
    by_pattern: bool  # a table, whole: partitions and views are only meant when they are named
    visible: bool  # found without its schema

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def chosen(listed: Sequence[Listed], written: Sequence[str], excluded: Sequence[str]) -> list[int]:
    """The oids of the tables, each once, in the order written. Raises UnknownName with the nearest name."""
    out = {oid for text in excluded for oid in _meant(listed, text)}
    found = dict.fromkeys(oid for text in written for oid in _meant(listed, text))
    return [oid for oid in found if oid not in out]


def _meant(listed: Sequence[Listed], text: str) -> list[int]:
    # In quotes every sign is a letter of the name.
    if is_pattern(text) and '"' not in text:
        tables = {(one.schema, one.name): one.oid for one in listed if one.by_pattern}
        names = matching(text, tables, "public")
        if not names:
            schemas = sorted({f"{schema}.*" for schema, _ in tables})
            raise UnknownName(f"no table matches {text!r}", hint=did_you_mean(text, schemas))
        return [tables[name] for name in names]
    parts = split_name(text)
    for one in listed:
        if one.name == parts[-1] and (one.visible if len(parts) == 1 else one.schema == parts[0]):
            return [one.oid]
    raise UnknownName(f"there is no table {text}", hint=did_you_mean(text, [one.full_name for one in listed]))


def split_setting(text: str) -> tuple[str | None, str]:
    """`TABLE=VALUE` → both; a text without a name → None and the text. In quotes a = belongs to the name."""
    match = _SETTING.fullmatch(text)
    return (match["name"].strip(), match["value"].strip()) if match else (None, text.strip())
