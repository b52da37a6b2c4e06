"""Dataclasses to JSON and back."""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headwater.model.json_codec import from_json, json_name, to_json


class Color(enum.StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    number: int
    text: str | None = None


@dataclass(frozen=True)
class Outer:
    kind: str = field(metadata=json_name("type"))
    at: dt.datetime
    parts: tuple[Inner, ...] = ()
    path: Path | None = None
    words: Mapping[str, str] = field(default_factory=dict)
    color: str = Color.RED


VALUE = Outer("x", dt.datetime(2026, 3, 2, tzinfo=dt.UTC), (Inner(1), Inner(2, "two")), Path("/a/b"), {"k": "v"})
TEXT = (
    '{"type": "x", "at": "2026-03-02T00:00:00+00:00", "parts": [{"number": 1, "text": null}, {"number": 2, '
    '"text": "two"}], "path": "/a/b", "words": {"k": "v"}, "color": "red"}'
)


def test_names_order_and_nesting() -> None:
    assert json.dumps(to_json(VALUE)) == TEXT


def test_a_value_comes_back_equal() -> None:
    assert from_json(Outer, json.loads(TEXT)) == VALUE


def test_absent_and_null_fields_take_their_defaults_and_unknown_names_are_ignored() -> None:
    data = {"type": "x", "at": "2026-03-02T00:00:00+00:00", "words": None, "more": 1}
    assert from_json(Outer, data) == Outer("x", VALUE.at)


def test_a_field_without_a_default_is_required() -> None:
    with pytest.raises(KeyError, match="type"):
        from_json(Outer, {"at": "2026-03-02T00:00:00+00:00"})


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes has no JSON form"):
        to_json({"payload": b"x"})
