"""Columns as DDL: names in backticks are names, whatever they look like."""

from __future__ import annotations

import pytest

from headwater.config.ddl import DdlColumn, DdlType, parse_ddl


@pytest.mark.parametrize("name", ["@timestamp", "$a.b", ",", "<", "not", "x y", "a`b", "1", "a\nb", "ü"])
def test_any_name_can_be_quoted(name: str):
    quoted = f"`{name.replace('`', '``')}`"
    columns = parse_ddl(f"{quoted} struct<{quoted}: int, b: string>, c int NOT NULL")
    inside = (DdlColumn(name, DdlType("int")), DdlColumn("b", DdlType("string")))
    assert columns == (DdlColumn(name, DdlType("struct", fields=inside)), DdlColumn("c", DdlType("int"), required=True))
    assert type(columns[0].name) is str


@pytest.mark.parametrize("text", ["@x int", "a int `b` int", "a `<`", "a array`<`int>", ", int"])
def test_what_is_not_quoted_is_still_looked_at(text: str):
    with pytest.raises(ValueError, match=r"cannot read|expected|unknown type"):
        parse_ddl(text)
