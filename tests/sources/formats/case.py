"""A case of the table: what a format gets, and what must come of it (G8)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headwater.model.errors import HeadwaterError

OBJECTS, KAFKA = "objects", "kafka"
Number = int | None  # of a record, from 1; None: the whole object


@dataclass(frozen=True)
class Records:
    """Values of messages, or lines of one object. None is a tombstone, which a file has no line for."""

    values: tuple[bytes | None, ...]

    def __init__(self, *values: bytes | str | None) -> None:
        object.__setattr__(self, "values", tuple(v.encode() if isinstance(v, str) else v for v in values))


@dataclass(frozen=True)
class File:
    """The content of one object; its name says how it is compressed."""

    content: bytes
    name: str = "x"

    def __init__(self, content: bytes | str, name: str = "x") -> None:
        object.__setattr__(self, "content", content.encode() if isinstance(content, str) else content)
        object.__setattr__(self, "name", name)


@dataclass(frozen=True)
class AvroRecords:
    """Records of one schema: an Avro file, or messages with the schema in `avro_schema`."""

    fields: Mapping[str, object]  # name → Avro type
    records: Sequence[Mapping[str, object]]

    @property
    def schema(self) -> dict[str, Any]:
        fields = [{"name": name, "type": kind} for name, kind in self.fields.items()]
        return {"type": "record", "name": "r", "fields": fields}


@dataclass(frozen=True)
class Events:
    """Messages with a key and headers; in a file as Connect's S3 sinks write them."""

    events: Sequence[Mapping[str, Any]]  # value, key, headers


Payload = Records | File | AvroRecords | Events


@dataclass(frozen=True)
class Outcome:
    """What comes of a payload."""

    columns: str = ""  # as DDL, without metadata
    rows: tuple[tuple[Any, ...], ...] = ()
    rejects: Mapping[Number, str] = field(default_factory=dict)  # number of the record → reason
    error: str = (
        ""  # the stream is refused before a row is read; or, with "crash: ", reading it ends in an error of ours
    )

    def shown(self) -> tuple[object, ...]:
        """Comparable: NaN is itself, -0.0 is not 0.0, and 1, 1.0, True are three values."""
        rows = [tuple(map(_shown, row)) for row in self.rows]
        return self.columns, rows, dict(sorted(self.rejects.items(), key=str)), self.error

    def by(self, expected: Outcome) -> Outcome:
        """With reasons as they are expected, where they begin like that: a library's own words come behind "…"."""
        rejects = {n: _by(reason, expected.rejects.get(n, "")) for n, reason in self.rejects.items()}
        return replace(self, rejects=rejects)


@dataclass(frozen=True)
class Otherwise:
    """What a transport does instead, and why. `defect`: it should not."""

    why: str
    outcome: Outcome
    defect: bool = False


@dataclass(frozen=True)
class Case:
    """`windows` are read one after the other; the outcome is that of the last."""

    name: str
    format: str
    windows: tuple[Payload, ...]
    outcome: Outcome
    schema: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    otherwise: Mapping[str, Otherwise] = field(default_factory=dict)  # by transport
    shows: tuple[str, ...] = ()  # columns of a row that the outcome has; by default those of the content
    only: str = ""  # the one transport that the case is about

    def carried_by(self, transport: str) -> bool:
        if self.only:
            return transport == self.only
        if transport == KAFKA:
            return self.format not in ("csv", "parquet") and not any(isinstance(one, File) for one in self.windows)
        tombstones = any(isinstance(one, Records) and None in one.values for one in self.windows)
        return not tombstones and not {"avro_schema", "tombstones"} & self.options.keys()

    def expected(self, transport: str) -> Outcome:
        return self.otherwise[transport].outcome if transport in self.otherwise else self.outcome


def case(
    name: str,
    format_: str,
    payload: Payload | Sequence[Payload],
    rows: Sequence[tuple[Any, ...]] = (),
    *,
    columns: str | None = None,
    rejects: Mapping[Number, str] | None = None,
    error: str = "",
    schema: str | None = None,
    shows: tuple[str, ...] = (),
    only: str = "",
    **options: Any,
) -> Case:
    """A line of the table. Columns are those of the schema, if one is written."""
    windows = tuple(payload) if isinstance(payload, list) else (payload,)
    outcome = Outcome(
        "" if error else (columns if columns is not None else schema or ""), tuple(rows), rejects or {}, error
    )
    return Case(name, format_, windows, outcome, schema, options, shows=shows, only=only)  # type: ignore[arg-type]


def differs(one: Case, transport: str, why: str, *, defect: bool = False, **outcome: Any) -> Case:
    """The same case, where one transport gives something else."""
    other = Otherwise(why, _changed(one.outcome, outcome), defect)
    return replace(one, otherwise={**one.otherwise, transport: other})


def defect(one: Case, why: str, **today: Any) -> Case:
    """The same case, where every transport gives something else today, and should not."""
    for transport in (OBJECTS, KAFKA):
        if one.carried_by(transport):
            one = differs(one, transport, why, defect=True, **today)
    return one


def _changed(outcome: Outcome, changes: Mapping[str, Any]) -> Outcome:
    changed = replace(outcome, **{**changes, "rows": tuple(changes.get("rows", outcome.rows))})
    return replace(changed, columns="", rows=(), rejects={}) if changed.error else changed


def refusal(error: Exception, *where: str) -> Outcome:
    """A stream that is not read, without the words that say where it is."""
    if not isinstance(error, HeadwaterError):
        return Outcome(error=f"crash: {type(error).__name__}: {error}")
    message = error.message
    for place in where:
        message = message.removeprefix(place)
    return Outcome(error=message)


_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def as_ddl(fields: Sequence[pa.Field]) -> str:
    """Columns as DDL; a type that DDL has no word for as Arrow writes it."""
    return ", ".join(f"{_name(one.name)} {_type(one.type)}{'' if one.nullable else ' NOT NULL'}" for one in fields)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name}`"


def _type(kind: pa.DataType) -> str:
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_type(kind.key_type)},{_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{as_ddl(list(kind))}>"
    return _NAMES.get(kind, str(kind))


def value_of(scalar: pa.Scalar) -> object:
    """As Python's; a moment beyond Python's years as its number."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return f"{scalar.type} {scalar.value}"


def _by(reason: str, expected: str) -> str:
    return expected if expected.endswith("…") and reason.startswith(expected[:-1]) else reason


def _shown(value: Any) -> object:
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _shown(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    return repr(value)
