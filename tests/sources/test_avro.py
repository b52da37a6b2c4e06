"""Avro records as columns."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headwater.model.errors import InputError
from headwater.sources.avro import columns_of


def columns(*fields: dict, namespace: str = "shop") -> pa.Schema:
    record = {"type": "record", "name": "order", "namespace": namespace, "fields": list(fields)}
    return columns_of(json.dumps(record), "x.avsc")


def test_a_type_is_declared_once_and_named_by_any_later_field():
    location = {"type": "record", "name": "place", "fields": [{"name": "city", "type": "string"}]}
    read = columns(
        {"name": "a", "type": location},
        {"name": "b", "type": "place"},
        {"name": "c", "type": ["null", "shop.place"]},
        {"name": "d", "type": {"type": "array", "items": "place"}},
    )
    struct = pa.struct([pa.field("city", pa.string(), nullable=False)])
    assert [read.field(name).type for name in "abc"] == [struct] * 3
    assert read.field("d").type.value_type == struct


@pytest.mark.parametrize(
    "schema", ["{", "[]", '"string"', '{"type": "record", "name": "x", "fields": [{"name": "a"}]}']
)
def test_what_is_no_record_is_refused(schema: str):
    with pytest.raises(InputError):
        columns_of(schema, "x.avsc")


def test_unions_and_moments_that_cannot_be_kept_are_refused_with_their_field():
    for kind in (["int", "string"], {"type": "long", "logicalType": "timestamp-nanos"}):
        with pytest.raises(InputError, match=r"x\.avsc: a: "):
            columns({"name": "a", "type": kind})
