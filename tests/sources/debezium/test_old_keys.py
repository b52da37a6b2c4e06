"""A former key as the source writes it is read by the sink as the same key."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.sinks.iceberg.cdc.batch import old_key_values
from headwater.sources.debezium.change_batch import key_as_json

KEYS = [
    (pa.int32(), -1),
    (pa.int64(), 2**63 - 1),
    (pa.string(), 'Zürich "x"'),
    (pa.bool_(), True),
    (pa.binary(), b"\x00\xff"),
    (pa.date32(), dt.date(2026, 3, 2)),
    (pa.timestamp("us"), dt.datetime(2026, 3, 2, 8, 30, 0, 123456)),  # noqa: DTZ001 - without a zone
    (pa.timestamp("us", "UTC"), dt.datetime(2026, 3, 2, 8, 30, tzinfo=dt.UTC)),
    (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    (pa.decimal128(38, 0), Decimal(10**38 - 1)),
]


@pytest.mark.parametrize(("kind", "value"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_a_key_of_every_type_comes_back(kind, value):
    columns = [pa.array([value], kind), pa.array(["x"])]
    read = old_key_values([json.loads(key_as_json(columns, 0))], [kind, pa.string()])
    assert read == columns
