"""How databases are led to rows by their keys, against a golden file: HEADWATER_GOLDEN=1 writes it anew."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from headwater.model.protocols.source import KeyRanges
from headwater.model.types import Column, CursorType
from headwater.sources.sql import statements
from headwater.sources.sql.database import Relation, Subject
from headwater.sources.sql.key_filters import KEYS_AT_ONCE, key_conditions
from tests.sources.sql.test_statements import check

DIALECTS = ("postgres", "sqlite", "mysql", "tsql", "oracle")
MOMENT = dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC)
KEYS = {
    "int64": [3, -1],
    "string": ["O'Brien\\", ""],
    "bool": [True, False],
    "date": [MOMENT.date()],
    "timestamp": [MOMENT.replace(tzinfo=None)],
    "timestamptz": [MOMENT],
    "decimal(9,2)": [decimal.Decimal("-1.50")],
    "binary": [b"\x00\xff"],
    "float64": [1.5],
}
SPANS = {
    "int64": ((None, 5), (9, 9), (20, None)),
    "date": ((MOMENT.date(), None),),
    "timestamptz": ((MOMENT, MOMENT + dt.timedelta(days=1)),),
    "decimal(9,2)": ((decimal.Decimal("-1.50"), decimal.Decimal("2.00")),),
    "string": (("a", "b"),),
}


def relation(dialect: str, *kinds: str) -> Relation:
    columns = tuple(Column(f"k{n}", kind, nullable=False) for n, kind in enumerate(kinds))
    subject = Subject(dialect, "seq", CursorType.INTEGER, ("public", "t"))
    return Relation("t", subject, columns, ("k0",), nullable_cursor=False, late="digest", why="")


def shown(dialect: str, wanted: KeyRanges | pa.Table, *kinds: str) -> str:
    subject = relation(dialect, *kinds)
    conditions = key_conditions(subject, wanted)
    if conditions is None:
        return "-- everything is read"
    return ";\n".join(statements.read_rows(subject.subject, subject.columns, [one]) for one in conditions)


def test_the_statements_are_those_of_the_golden_file():
    sections = {}
    for dialect in DIALECTS:
        for kind, values in KEYS.items():
            sections[f"{dialect}: keys, {kind}"] = shown(dialect, pa.table({"k0": values}), kind)
        two = pa.table({"k0": [1, 2], "k1": ["x", None]})
        sections[f"{dialect}: keys of two columns"] = shown(dialect, two, "int64", "string")
        for kind, bounds in SPANS.items():
            sections[f"{dialect}: ranges, {kind}"] = shown(dialect, KeyRanges("k0", bounds), kind)
    check("some_keys", sections)


def test_many_keys_are_asked_for_in_several_statements_and_very_many_not_at_all():
    some = pa.table({"k0": range(KEYS_AT_ONCE + 1)})
    assert len(key_conditions(relation("postgres", "int64"), some)) == 2
    assert key_conditions(relation("postgres", "int64"), pa.table({"k0": range(100_001)})) is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_column_that_the_source_does_not_have_leads_nowhere(dialect):
    assert key_conditions(relation(dialect, "int64"), pa.table({"other": [1]})) is None
    assert key_conditions(relation(dialect, "int64"), KeyRanges("other", ((1, 2),))) is None
