"""Dataclasses to JSON and back."""

from __future__ import annotations

import datetime as dt
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headwater.model.json_codec import fields_json, from_json, from_stored, json_name, to_json


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


@dataclass(frozen=True)
class Stored:
    at: dt.datetime
    names: tuple[str, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None


@dataclass(frozen=True)
class Doubled:
    """With a form of its own."""

    number: int

    def to_json(self) -> dict[str, int]:
        return {"double": 2 * self.number}

    @classmethod
    def from_json(cls, data: Mapping[str, int]) -> Doubled:
        return cls(data["double"] // 2)


@dataclass(frozen=True)
class Holder:
    one: Doubled
    others: tuple[Doubled, ...] = ()


def test_a_value_with_a_form_of_its_own_keeps_it_inside_of_others() -> None:
    holder, data = Holder(Doubled(1), (Doubled(2),)), {"one": {"double": 2}, "others": [{"double": 4}]}
    assert to_json(holder) == data
    assert from_json(Holder, data) == from_stored(Holder, data) == holder
    assert fields_json(Doubled(3)) == {"number": 3}


def test_a_stored_value_comes_back_whole_or_not_at_all() -> None:
    value = Stored(VALUE.at, ("a",), {"k": "v"})
    data = to_json(value)
    assert from_stored(Stored, data) == value
    for name in data:
        with pytest.raises(KeyError):
            from_stored(Stored, {other: part for other, part in data.items() if other != name})
    for name in ("at", "names", "more"):
        with pytest.raises(TypeError):
            from_stored(Stored, {**data, name: None})
    with pytest.raises(TypeError):
        from_stored(Stored, {**data, "more": 5})
