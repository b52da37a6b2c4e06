"""Values of any kind, there and back."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Context, Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.rows import position
from headwater.sources.debezium import conversions
from headwater.sources.debezium import conversions as to
from headwater.sources.debezium.column_types import convert_exact, field_type_of
from headwater.sources.debezium.positions import log_positions, positions
from headwater.sources.objects.formats.debezium import line_of
from tests.sources.debezium.reading import Stream, as_bytes, event, field, messages_of, with_schema

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone
MICRO = dt.timedelta(microseconds=1)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1)), st.integers(0, 38))
def test_decimals_of_every_size(numbers, scale):
    converted = conversions.decimals(38, scale)(
        pa.array([None if n is None else unscaled(n) for n in numbers], pa.string())
    )
    assert converted.to_pylist() == [
        None if n is None else Decimal(n).scaleb(-scale, Context(prec=80)) for n in numbers
    ]


@given(st.binary(min_size=1, max_size=20), st.integers(1, 38))
def test_bytes_that_are_longer_than_they_need_be_are_the_same_number(data, precision):
    field_type = field_type_of(
        field("v", "bytes", "a.Decimal", parameters={"scale": "0", "connect.decimal.precision": str(precision)})
    )
    number = int.from_bytes(data, "big", signed=True)
    array = pa.array([base64.b64encode(data).decode(), None, unscaled(1)])
    converted, bad = convert_exact(field_type, array)
    if abs(number) < 10**precision:
        assert (converted.to_pylist(), bad) == ([Decimal(number), None, Decimal(1)], [])
    else:
        assert (converted.to_pylist(), bad) == ([None, None, Decimal(1)], [0])


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9)))
def test_decimals_as_texts(numbers):
    converted = conversions.texts_to_decimals(20, 3)(pa.array([str(n) for n in numbers], pa.string()))
    assert converted.to_pylist() == numbers


@given(st.lists(st.none() | st.datetimes(min_value=dt.datetime(1, 1, 1))))  # noqa: DTZ001 - without a zone
def test_timestamps_in_every_form(moments):
    micros = pa.array([None if at is None else (at - EPOCH) // MICRO for at in moments], pa.int64())
    texts = pa.array([None if at is None else at.isoformat() + "Z" for at in moments], pa.string())
    assert to.moments(10**6)(micros).to_pylist() == moments
    assert to.iso_moments(texts).to_pylist() == moments
    zoned = [None if at is None else at.replace(tzinfo=dt.UTC) for at in moments]
    assert to.zoned_moments(texts).to_pylist() == zoned


@given(st.lists(st.none() | st.dates()))
def test_dates_in_both_forms(dates):
    days = pa.array([None if day is None else (day - EPOCH.date()).days for day in dates], pa.int32())
    assert to.days(days).to_pylist() == dates
    texts = pa.array([None if day is None else f"{day.isoformat()}Z" for day in dates], pa.string())
    assert to.iso_days(texts).to_pylist() == dates


@given(st.lists(st.none() | st.times()))
def test_times_as_texts(times):
    micros = [None if at is None else (dt.datetime.combine(EPOCH, at) - EPOCH) // MICRO for at in times]
    wanted = [None if at is None else at.isoformat("microseconds") for at in times]
    assert to.times(10**6)(pa.array(micros, pa.int64())).to_pylist() == wanted


@given(st.lists(st.none() | st.binary()))
def test_bytes_in_every_form(data):
    for encode, decode in (
        (base64.b64encode, to.from_base64),
        (base64.urlsafe_b64encode, to.from_base64url),
        (base64.b16encode, to.from_hex),
    ):
        texts = pa.array([None if one is None else encode(one).decode() for one in data], pa.string())
        assert decode(texts).to_pylist() == data


LOG = st.integers(0, 2**62 - 1)


@given(st.lists(st.tuples(st.none() | LOG, LOG, st.none() | LOG, st.booleans()), min_size=1))
def test_positions_are_those_of_the_model(logged):
    sequences = [f'[{"null" if c is None else f"{chr(34)}{c}{chr(34)}"},"{lsn}"]' for c, lsn, _, _ in logged]
    source = {
        "sequence": pa.array(sequences),
        "lsn": pa.array([own for _, _, own, _ in logged], pa.int64()),
    }
    reads = pa.array([read for *_, read in logged]).to_numpy(zero_copy_only=False)
    packed, bad = positions(*log_positions("postgresql", source), reads)
    assert not bad.any()
    assert [int(one) for one in packed.to_pylist()] == [
        position(lsn if commit is None else commit, 2 * (own or 0) + (not read)) for commit, lsn, own, read in logged
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(TEXTS, st.none() | TEXTS, st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=30))
def test_rows_are_the_same_with_and_without_schemas_and_whatever_stands_in_them(rows_of_event):
    fields = [field("id", "int32"), field("payload", "string"), field('"payload":', "string"), field("n", "int64")]
    values = [
        event("c", {"id": n, "payload": a, '"payload":': b, "n": c}) for n, (a, b, c) in enumerate(rows_of_event)
    ]  # names and values that look like an envelope
    declared = Stream('id int, payload string, `"payload":` string, n bigint', key=["id"])
    bare = declared.poll(messages_of([{"value": value} for value in values]))
    wrapped = Stream(key=["id"]).poll(messages_of([{"value": with_schema(fields, value)} for value in values]))
    assert bare.rejected == wrapped.rejected == []
    assert bare.rows.to_pylist() == wrapped.rows.to_pylist()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, JSON, max_size=3), st.dictionaries(TEXTS, JSON, max_size=3))
def test_a_line_that_wraps_an_event_gives_it_as_it_was_written(key, value):
    message = {"key": key, "value": value, "offset": 1, "headers": []}
    line = line_of(as_bytes(message))
    assert (line.value, line.key) == (as_bytes(value), as_bytes(key))
    assert line_of(as_bytes({"value": None, "key": key})).value is None
