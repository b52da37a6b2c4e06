"""Signals as Debezium reads them: an id, a type, and JSON that says which tables are meant."""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.model.errors import InputError
from headwater.sources.postgres.readiness.facts import Table
from headwater.sources.postgres.readiness.sql_text import table_name

SnapshotKind = Literal["incremental", "blocking"]

EXECUTE, STOP, PAUSE, RESUME = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"

_REGEX_SIGNS = re.compile(r"[\\^$.|?*+(){}\[\]]")
_PARSED_SIGNS = re.compile(r"[\s.\"'`\[\]]")  # what Debezium's parser of names stops at
_MANGLED = re.compile(r"''|``")  # what it takes for one sign, even in quotes
_TIME = "%Y%m%dT%H%M%S"
_ID = re.compile(r"headwater-(\d{8}T\d{6})Z-[0-9a-f]{6}")


@dataclass(frozen=True)
class Signal:
    """One row for the signal table."""

    id: str
    type: str
    data: str


def new_id(now: dt.datetime) -> str:
    """Unique, and says when: the signal table has no column for that."""
    return f"headwater-{now.astimezone(dt.UTC).strftime(_TIME)}Z-{uuid.uuid4().hex[:6]}"


def written_at(signal_id: str) -> dt.datetime | None:
    """When a signal of ours was written; None for those of others."""
    match = _ID.fullmatch(signal_id)
    return dt.datetime.strptime(match[1], _TIME).replace(tzinfo=dt.UTC) if match else None


def snapshot(signal_id: str, tables: Sequence[Table], kind: SnapshotKind, conditions: Mapping[int, str]) -> Signal:
    """Asks for the rows of the tables as they are now; `conditions` (by oid) choose among them."""
    _refuse_same_but_for_case(tables, conditions)
    if kind == "incremental":
        _refuse_names_that_break_offsets(tables)
    data: dict[str, object] = {"type": kind, "data-collections": [collection(table) for table in tables]}
    filters = [_filter(table, conditions[table.oid], kind) for table in tables if table.oid in conditions]
    if filters:
        data["additional-conditions"] = filters
    return Signal(signal_id, EXECUTE, json.dumps(data, ensure_ascii=False))


def _filter(table: Table, condition: str, kind: SnapshotKind) -> Mapping[str, str]:
    if kind == "incremental":
        return {"data-collection": collection(table), "filter": condition}
    whole = f"SELECT * FROM {table_name(table)} WHERE {condition}"  # noqa: S608 - checked by the server before
    return {"data-collection": _parsed(table), "filter": whole}


def stop(signal_id: str, collections: Sequence[str]) -> Signal:
    """Ends the incremental snapshot of the tables; of all, where none is named."""
    data: dict[str, object] = {"type": "incremental"}
    if collections:
        data["data-collections"] = list(collections)
    return Signal(signal_id, STOP, json.dumps(data, ensure_ascii=False))


def collection(table: Table) -> str:
    """The table in `data-collections`, which Debezium takes for a regular expression over the tables that it captures."""
    parts = (table.schema, table.name)
    if any(_REGEX_SIGNS.search(part) for part in parts):
        return r"\.".join(_REGEX_SIGNS.sub(r"\\\g<0>", part) for part in parts)
    return table.full_name


def _parsed(table: Table) -> str:
    """The table where Debezium reads a name."""
    parts = (table.schema, table.name)
    if any(_MANGLED.search(part) for part in parts):
        raise InputError(
            f"{table.full_name!r}: Debezium cannot read that name in a filter", hint="ask without --filter"
        )
    if not is_odd(*parts) and not any(_REGEX_SIGNS.search(part) for part in parts):
        return table.full_name
    return ".".join(f'"{part.replace(chr(34), 2 * chr(34))}"' for part in parts)


def is_odd(*parts: str) -> bool:
    """Whether Debezium cannot read a name that it has itself written without quotes."""
    return any(_PARSED_SIGNS.search(part) for part in parts)


def _refuse_names_that_break_offsets(tables: Sequence[Table]) -> None:
    # Debezium keeps the names in its offsets without quotes, cannot read them back, and its task never starts again.
    odd = [table for table in tables if is_odd(table.schema, table.name)]
    if odd:
        raise InputError(
            f"{', '.join(repr(table.full_name) for table in odd)}: an incremental snapshot would break the connector for "
            "good, since it cannot read names with spaces, dots, quotes or brackets back from its offsets",
            hint="ask with --blocking, or rename the table",
        )


def _refuse_same_but_for_case(tables: Sequence[Table], conditions: Mapping[int, str]) -> None:
    # Debezium looks up filters without regard to case, and would give both tables the same one.
    folded: dict[str, Table] = {}
    for table in tables if conditions else ():
        other = folded.setdefault(table.full_name.casefold(), table)
        if other is not table:
            raise InputError(
                f"{other.full_name} and {table.full_name}: Debezium cannot tell their filters apart",
                hint="ask for them by two signals",
            )
