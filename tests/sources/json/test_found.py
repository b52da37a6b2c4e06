"""JSON without a schema: columns are found, kept, and only ever added to."""

from __future__ import annotations

import pytest

from headwater.sources.ddl_schema import schema_of
from headwater.sources.json.found import ddl_of, observe, with_new


def found(*messages: str, known: dict | None = None) -> dict[str, str]:
    kinds: dict[str, set[str]] = {}
    observe([message.encode() for message in messages], kinds)
    return {name: kind for name, (_, kind) in with_new(known or {}, kinds).items()}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5"], "bigint"),
        (["9007199254740993"], "bigint"),
        (["9223372036854775808"], "string"),
        (["1", "1.5"], "double"),
        (["9007199254740993", "1.5"], "string"),
        (["0.1"], "double"),
        (["0.12345678901234567890123"], "string"),
        (["1e400"], "string"),
        (["true", "null"], "boolean"),
        (["true", "1"], "string"),
        (['"x"', "1"], "string"),
        (['{"b": 1}', "[1]"], "string"),
    ],
)
def test_the_type_of_a_column_keeps_every_value_exactly(values: list[str], kind: str):
    assert found(*(f'{{"a": {value}}}' for value in values)) == {"a": kind}


def test_fields_that_are_only_null_and_messages_that_are_no_objects_bring_no_column():
    assert found('{"a": null, "b": 1}', "oops", "[1]") == {"b": "bigint"}


def test_columns_stand_in_the_order_in_which_they_were_found_and_names_may_be_odd():
    first = with_new({}, {"z": {"bigint"}, "odd `name`": {"string"}})
    later = with_new(first, {"a": {"boolean"}, "z": {"string"}})
    assert ddl_of(later) == "`z` bigint, `odd ``name``` string, `a` boolean"
    assert schema_of(ddl_of(later)).names == ["z", "odd `name`", "a"]


def test_a_negative_number_of_nineteen_digits_is_a_bigint():
    kinds: dict = {}
    observe([b'{"a": -1000000000000000000, "b": -9223372036854775808, "c": -9223372036854775809}'], kinds)
    assert kinds == {"a": {"long bigint"}, "b": {"long bigint"}, "c": {"json"}}
