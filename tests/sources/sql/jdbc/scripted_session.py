"""A database that writes down what it is asked, and answers from a script: for golden files of whole polls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headwater.config.sources.sql import SqlSourceSettings
from headwater.model.position.marks import ColumnMark
from headwater.sources.sql.database import Limits, Relation, Stream
from headwater.sources.sql.jdbc.database import JdbcView
from headwater.sources.sql.jdbc.vendors import jdbc_address
from headwater.sources.sql.windows.by_value import ByDigest, ByValue

URLS = {"mysql": "mysql://host/shop", "tsql": "mssql://host/shop", "oracle": "oracle://host/shop"}


class ScriptedSession:
    """Every value it is asked for is the next of `values`; every count is `count`; every stretch is empty."""

    def __init__(self, dialect: str, values: list[str], count: int) -> None:
        self.address = jdbc_address(URLS[dialect], Path())
        self.asked: list[str] = []
        self._values, self._count = list(values), count

    def fetch(self, sql: str) -> list[tuple[str, ...]]:
        self.asked.append(sql)
        return [(str(self._count),)] if sql.startswith("SELECT COUNT") else [(self._values.pop(0),)]

    def rows(self, sql: str, wire_schema: str) -> Iterator[list[tuple]]:
        self.asked.append(f"{sql}\n-- as {wire_schema}")
        return iter(())


def poll(
    relation: Relation, mark: ColumnMark | None, values: list[str], *, count: int = 10, **settings: object
) -> dict[str, str]:
    """What a poll asks to plan its window, and then to read it."""
    checked = SqlSourceSettings.model_validate(
        {"url": "x", "table": "t", "cursor": relation.subject.cursor, **settings}
    )
    session = ScriptedSession(relation.subject.dialect, values, count)
    view = JdbcView(session)
    stream = Stream(relation, checked, mark, Limits(checked.max_rows, checked.splits, 2))
    strategy = ByValue() if checked.late == "off" else ByDigest()
    end = strategy.plan(stream, view).end
    assert end is not None
    planning = list(session.asked)
    session.asked.clear()
    splits = strategy.splits(stream, end, view, count)
    statements = [split.inner.sql if hasattr(split, "inner") else split.sql for split in splits]
    sections = {f"plan {number}": sql for number, sql in enumerate(planning, start=1)}
    sections |= {f"cut {number}": sql for number, sql in enumerate(session.asked, start=1)}
    return sections | {f"read {number}": sql for number, sql in enumerate(statements, start=1)}
