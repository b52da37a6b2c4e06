"""`--replica-identity` as users write it: `full`, `sales.orders=full`, `orders=orders_code_key`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.model.errors import InputError
from headwater.sources.postgres.readiness.facts import Table
from headwater.sources.postgres.readiness.naming import split_setting
from headwater.sources.sql.names import split_name


def identities(written: Sequence[str], tables: Sequence[Table]) -> tuple[str | None, Mapping[int, str]]:
    """The identity for all tables that have none, and those of single ones, by oid."""
    lacking = None
    by_table: dict[int, str] = {}
    for text in written:
        name, way = split_setting(text)
        if name is not None:
            by_table[_table(name, tables).oid] = way
        elif way == "full":
            lacking = way
        else:
            raise InputError(
                f"--replica-identity {way} says nothing about which table it is for",
                hint="write TABLE=default or TABLE=INDEX; only `full` can stand for all that have none",
            )
    return lacking, by_table


def _table(name: str, tables: Sequence[Table]) -> Table:
    parts = split_name(name)
    found = [one for one in tables if one.name == parts[-1] and (len(parts) == 1 or one.schema == parts[0])]
    if len(found) != 1:
        known = ", ".join(one.full_name for one in tables)
        raise InputError(f"--replica-identity {name}: none of the tables, or more than one", hint=f"they are: {known}")
    return found[0]
