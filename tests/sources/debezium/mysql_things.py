"""A MySQL table of every type, what happens to it, and in which modes Debezium tells of it: what was recorded."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

DAY = dt.date(2026, 3, 2)


def moment(microsecond: int) -> dt.datetime:
    return dt.datetime(2026, 3, 2, 8, 30, 0, microsecond)  # noqa: DTZ001 - a DATETIME has no zone


def well_known_binary(x: float, y: float) -> bytes:
    return b"\x01\x01\0\0\0" + struct.pack("<dd", x, y)


# Column, type, the value that MySQL is given, the value that is kept where the connector's settings are its defaults.
COLUMNS: list[tuple[str, str, str, Any]] = [
    ("flag", "boolean", "true", 1),
    ("t", "tinyint", "-128", -128),
    ("tu", "tinyint unsigned", "255", 255),
    ("s", "smallint", "-32768", -32768),
    ("su", "smallint unsigned", "65535", 65535),
    ("m", "mediumint", "-8388608", -8388608),
    ("mu", "mediumint unsigned", "16777215", 16777215),
    ("i", "int", "-2147483648", -2147483648),
    ("iu", "int unsigned", "4294967295", 4294967295),
    ("b", "bigint", "-9223372036854775808", -(2**63)),
    ("bu", "bigint unsigned", "9223372036854775807", 2**63 - 1),
    ("f", "float", "1.5", 1.5),
    ("d", "double", "2.2250738585072014e-308", 2.2250738585072014e-308),
    ("n", "decimal(12,3)", "-123456789.125", Decimal("-123456789.125")),
    ("wide", "decimal(65,30)", "12345678901234567890.000000000000000000000000000001", "12345678901234567890.000000000000000000000000000001"),
    ("bit1", "bit(1)", "b'1'", True),
    ("bits", "bit(12)", "b'000100000101'", b"\x05\x01"),
    ("c", "char(5)", "'ab'", "ab"),
    ("v", "varchar(40)", "'Zürich \"x\" 💧'", 'Zürich "x" 💧'),
    ("txt", "longtext", "repeat('x', 300)", "x" * 300),
    ("bin", "binary(4)", "x'00ff1000'", b"\0\xff\x10\0"),
    ("vb", "varbinary(8)", "x'00ff10'", b"\0\xff\x10"),
    ("bl", "blob", "x'00ff10'", b"\0\xff\x10"),
    ("e", "enum('ok','sad')", "'sad'", "sad"),
    ("st", "set('a','b','c')", "'a,c'", "a,c"),
    ("js", "json", """'{"b": [1, 2.5]}'""", '{"b":[1,2.5]}'),
    ("y", "year", "2026", 2026),
    ("day", "date", "'2026-03-02'", DAY),
    ("tm", "time", "'-838:59:59'", "-838:59:59.000000"),
    ("tm6", "time(6)", "'08:30:00.123456'", "08:30:00.123456"),
    ("dt0", "datetime", "'2026-03-02 08:30:00'", moment(0)),
    ("dt3", "datetime(3)", "'2026-03-02 08:30:00.125'", moment(125000)),
    ("dt6", "datetime(6)", "'2026-03-02 08:30:00.123456'", moment(123456)),
    ("at", "timestamp(6)", "'2026-03-02 08:30:00.123456+02:00'", moment(123456).replace(hour=6, tzinfo=dt.UTC)),
    ("p", "point", "ST_GeomFromText('POINT(1.5 -2)')", {"x": 1.5, "y": -2.0, "wkb": well_known_binary(1.5, -2), "srid": None}),
    ("g", "geometry", "ST_GeomFromText('POINT(1.5 -2)')", {"wkb": well_known_binary(1.5, -2), "srid": None}),
    ("vec", "vector(3)", "STRING_TO_VECTOR('[1,2.5,-3]')", [1.0, 2.5, -3.0]),
]  # fmt: skip

# The connector's settings, and the values that they make others.
MODES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "strings": (
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "connect",
            "binary.handling.mode": "hex",
            "bigint.unsigned.handling.mode": "precise",
        },
        {
            "bu": Decimal(2**63 - 1),
            "n": "-123456789.125",
            "bin": "00ff1000",
            "vb": "00ff10",
            "bl": "00ff10",
            "tm": None,  # the connector itself sends NULL for what is no time of a day
            "tm6": "08:30:00.123",
            "dt6": moment(123000),
        },
    ),
    "doubles": (
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "isostring",
            "binary.handling.mode": "base64",
            "bigint.unsigned.handling.mode": "long",
        },
        {
            "n": -123456789.125,
            "wide": 12345678901234567890.0,
            "bin": "AP8QAA==",
            "vb": "AP8Q",
            "bl": "AP8Q",
            "tm": None,
        },
    ),
    "nanoseconds": (
        {"time.precision.mode": "nanoseconds", "binary.handling.mode": "base64-url-safe"},
        {
            "bin": "AP8QAA==",
            "vb": "AP8Q",
            "bl": "AP8Q",
            "tm": "-838:59:59.000000000",
            "tm6": "08:30:00.123456000",
        },
    ),
    "microseconds": ({"time.precision.mode": "microseconds"}, {}),
    "transactions": ({"provide.transaction.metadata": "true"}, {}),
    "without_schemas": (
        {f"{side}.converter.schemas.enable": "false" for side in ("key", "value")}
        | {f"{side}.converter": "org.apache.kafka.connect.json.JsonConverter" for side in ("key", "value")},
        {},
    ),
}

INSERT = f"INSERT INTO things ({', '.join(name for name, *_ in COLUMNS)}, id) VALUES "
VALUES = ", ".join(value for _, _, value, _ in COLUMNS)

CREATED = [
    "CREATE DATABASE recorded",
    "USE recorded",
    f"CREATE TABLE things (id int PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind, *_ in COLUMNS)})",
    "CREATE TABLE signals (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data text)",
    f"{INSERT} ({VALUES}, 1)",
    "INSERT INTO things (id) VALUES (2)",
]

HAPPENED = [
    f"{INSERT} ({VALUES}, 3), ({VALUES}, 4)",
    "INSERT INTO things (id) VALUES (5)",
    "UPDATE things SET s = 7 WHERE id IN (1, 3)",
    "UPDATE things SET id = 50 WHERE id = 5",
    "DELETE FROM things WHERE id = 4",
    "BEGIN",
    "INSERT INTO things (id, s) VALUES (6, 1)",
    "UPDATE things SET s = 2 WHERE id = 6",
    "UPDATE things SET s = 3 WHERE id = 6",
    "COMMIT",
    "SET SESSION binlog_transaction_compression = ON",
    "BEGIN",
    "INSERT INTO things (id, s) VALUES (7, 1), (8, 1)",
    "UPDATE things SET s = 2 WHERE id = 7",
    "UPDATE things SET s = 3 WHERE id = 7",
    "DELETE FROM things WHERE id = 8",
    "COMMIT",
    "SET SESSION binlog_transaction_compression = OFF",
    "FLUSH BINARY LOGS",
    "ALTER TABLE things ADD COLUMN extra int DEFAULT 3",
    "UPDATE things SET s = 4 WHERE id = 6",
    "INSERT INTO signals VALUES ('again', 'execute-snapshot', '{\"data-collections\": [\"recorded.things\"]}')",
]

EMPTIED = [
    "TRUNCATE TABLE things",
    "INSERT INTO things (id) VALUES (9)",
]
