"""Dates and timestamps, in JSON and in CSV: ISO, at most microseconds, years 1 to 9999."""

from __future__ import annotations

import datetime as dt
from typing import Any

from tests.sources.formats.case import Case, File, Records, case, defect

EIGHT = dt.datetime(2026, 3, 2, 8, tzinfo=dt.UTC)
LOCAL = EIGHT.replace(tzinfo=None)
MICROS = EIGHT.replace(microsecond=123456)
FIRST = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)

WANTED = {
    "date": "a date such as 2026-03-02",
    "timestamp": "an ISO timestamp with a zone",
    "timestamp_ntz": "an ISO timestamp without a zone",
}
EXACT: list[tuple[str, str, Any]] = [
    ("date", "2026-03-02", dt.date(2026, 3, 2)),
    ("date", "2024-02-29", dt.date(2024, 2, 29)),
    ("date", "0001-01-01", dt.date(1, 1, 1)),
    ("date", "9999-12-31", dt.date(9999, 12, 31)),
    ("timestamp", "2026-03-02T08:00:00Z", EIGHT),
    ("timestamp", "2026-03-02 08:00:00Z", EIGHT),
    ("timestamp", "2026-03-02T08:00Z", EIGHT),
    ("timestamp", "2026-03-02T10:00:00+02:00", EIGHT),
    ("timestamp", "2026-03-02T10:00:00+0200", EIGHT),
    ("timestamp", "2026-03-02T10:00:00+02", EIGHT),
    ("timestamp", "2026-03-02T02:30:00-05:30", EIGHT),
    ("timestamp", "2026-03-02T08:00:00+00:00", EIGHT),
    ("timestamp", "2026-03-02T08:00:00.5Z", EIGHT.replace(microsecond=500000)),
    ("timestamp", "2026-03-02T08:00:00.123Z", EIGHT.replace(microsecond=123000)),
    ("timestamp", "2026-03-02T08:00:00.123456Z", MICROS),
    ("timestamp", "2026-03-02T08:00:00.123456000Z", MICROS),
    ("timestamp", "2026-03-02T10:00:00.123456000+02:00", MICROS),
    ("timestamp", "0001-01-01T00:00:00Z", FIRST),
    ("timestamp", "9999-12-31T23:59:59.999999Z", LAST),
    ("timestamp", "1969-12-31T23:59:59.999999Z", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)),
    ("timestamp_ntz", "2026-03-02T08:00:00", LOCAL),
    ("timestamp_ntz", "2026-03-02 08:00:00", LOCAL),
    ("timestamp_ntz", "2026-03-02T08:00", LOCAL),
    ("timestamp_ntz", "2026-03-02T08:00:00.123456", MICROS.replace(tzinfo=None)),
    ("timestamp_ntz", "2026-03-02T08:00:00.123456000", MICROS.replace(tzinfo=None)),
    ("timestamp_ntz", "0001-01-01T00:00:00", FIRST.replace(tzinfo=None)),
    ("timestamp_ntz", "9999-12-31T23:59:59.999999", LAST.replace(tzinfo=None)),
]
REFUSED: list[tuple[str, str]] = [
    ("date", ""),
    ("date", "2026-02-29"),
    ("date", "2026-02-30"),
    ("date", "2026-3-2"),
    ("date", "20260302"),
    ("date", "2026/03/02"),
    ("date", "02.03.2026"),
    ("date", "2026-03-02T08:00:00Z"),
    ("date", " 2026-03-02"),
    ("date", "10000-01-01"),
    ("date", "+10000-01-01"),
    ("date", "-0001-01-01"),
    ("timestamp", "2026-03-02T08:00:00"),
    ("timestamp", "2026-03-02"),
    ("timestamp", "2026-03-02T08:00:00.1234567Z"),
    ("timestamp", "2026-03-02T08:00:00.123456001Z"),
    ("timestamp", "2026-03-02T08:00:00.Z"),
    ("timestamp", "2026-03-02T08:00:00,5Z"),
    ("timestamp", "2026-03-02T08:00:00 Z"),
    ("timestamp", "2026-03-02_08:00:00Z"),
    ("timestamp", "2026-03-02T24:00:00Z"),
    ("timestamp", "2026-03-02T23:59:60Z"),
    ("timestamp", "2026-03-02T25:00:00Z"),
    ("timestamp", "2026-03-02T08:00:00 Europe/Berlin"),
    ("timestamp", "2026-03-02T08:00:00+24:00"),
    ("timestamp", "20260302T080000Z"),
    ("timestamp", "1772438400"),
    ("timestamp", "10000-01-01T00:00:00Z"),
    ("timestamp", "now"),
    ("timestamp_ntz", "2026-03-02T08:00:00Z"),
    ("timestamp_ntz", "2026-03-02T08:00:00+02:00"),
    ("timestamp_ntz", "2026-03-02T08:00:00.1234567"),
    ("timestamp_ntz", "08:00:00"),
    ("timestamp_ntz", "10000-01-01T00:00:00"),
]
# Spark's and Iceberg's tools have the years 1 to 9999, also after a zone has moved the moment.
BEYOND: list[tuple[str, str, str]] = [
    ("date", "0000-01-01", "date32[day] -719528"),
    ("timestamp", "0000-01-01T00:00:00Z", "timestamp[us, tz=UTC] -62167219200000000"),
    ("timestamp", "0001-01-01T00:00:00+02:00", "timestamp[us, tz=UTC] -62135604000000000"),
    ("timestamp", "9999-12-31T23:59:59-02:00", "timestamp[us, tz=UTC] 253402307999000000"),
    ("timestamp_ntz", "0000-01-01T00:00:00", "timestamp[us] -62167219200000000"),
]


def _json(ddl: str, text: str) -> Records:
    return Records(f'{{"a": "{text}"}}')


def _csv(ddl: str, text: str) -> File:
    return File(f'a\n"{text}"\n')


def _exact(ddl: str, text: str, value: Any) -> list[Case]:
    name = f"{ddl} takes '{text}'"
    return [
        case(name, "json", _json(ddl, text), [(value,)], schema=f"a {ddl}"),
        case(name, "csv", _csv(ddl, text), [(value,)], schema=f"a {ddl}"),
    ]


def _refused(ddl: str, text: str) -> list[Case]:
    name, reason = f"{ddl} refuses '{text}'", f"a: expected {WANTED[ddl]}, found the text '{text}'"
    return [
        case(name, "json", _json(ddl, text), rejects={1: reason}, schema=f"a {ddl}"),
        case(name, "csv", _csv(ddl, text), rejects={2: reason}, schema=f"a {ddl}"),
    ]


def _beyond(ddl: str, text: str, today: str) -> list[Case]:
    why = "a year outside of 1 to 9999 lands, and Python, Spark's own limits and most readers cannot show it"
    return [defect(one, why, rows=[(today,)], rejects={}) for one in _refused(ddl, text)]


CASES = [
    *(one for line in EXACT for one in _exact(*line)),
    *(one for line in REFUSED for one in _refused(*line)),
    *(one for line in BEYOND for one in _beyond(*line)),
    case(
        "a timestamp refuses a number",
        "json",
        Records('{"a": 1772438400}'),
        rejects={1: "a: expected an ISO timestamp with a zone, found the number 1772438400"},
        schema="a timestamp",
    ),
    case(
        "a timestamp in a struct and in an array",
        "json",
        Records('{"a": {"b": "2026-03-02T08:00:00Z"}, "c": ["2026-03-02", null]}'),
        [({"b": EIGHT}, [dt.date(2026, 3, 2), None])],
        schema="a struct<b timestamp>, c array<date>",
    ),
]
