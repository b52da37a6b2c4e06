"""Dataclasses ⇄ JSON: one name per field, in the order of the fields."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import types
import typing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_NAME = "json"


def json_name(name: str) -> Mapping[str, str]:
    """Metadata of a field whose name in JSON is another: `kind: str = field(metadata=json_name("type"))`."""
    return {_NAME: name}


def to_json(value: Any) -> Any:  # noqa: PLR0911 - one case per kind of value
    """Dataclasses and mappings as objects, sequences as lists, dates in ISO form, paths as text.

    A dataclass with a `to_json` of its own has the form that it returns.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value.to_json() if hasattr(value, "to_json") else fields_json(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Collection) and not isinstance(value, bytes | bytearray):
        return [to_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def fields_json(value: Any) -> dict[str, Any]:
    """A dataclass by its fields; for a `to_json` of its own."""
    described: Any = type(value)
    return {name: to_json(getattr(value, field)) for field, name in _names(described).items()}


def from_json(cls: type[T], data: Mapping[str, Any]) -> T:
    """The dataclass that the object describes. An absent or null field takes its default; unknown names are ignored.

    Raises KeyError for an absent field without a default.
    """
    described: Any = cls
    hints = _hints(described)
    values = {}
    for field, name in _names(described).items():
        value = data.get(name)
        if value is not None:
            values[field] = _decoded(hints[field], value)
        elif not _has_default(cls, field):
            if name not in data or not _optional(hints[field]):
                raise KeyError(name)
            values[field] = None
    return cls(**values)


def from_stored(cls: type[T], data: Mapping[str, Any]) -> T:
    """The dataclass that `to_json` wrote. Raises KeyError or TypeError where it is not whole: that is damage (W3)."""
    described: Any = cls
    hints = _hints(described)
    for field, name in _names(described).items():
        if data[name] is None and not _optional(hints[field]):
            raise TypeError(f"{name} is null")
    return from_json(cls, data)


def _decoded(hint: Any, value: Any) -> Any:  # noqa: PLR0911 - one case per kind of value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        (inner,) = (member for member in arguments if member is not type(None))
        return _decoded(inner, value)
    if origin is tuple:
        return tuple(_decoded(arguments[0], item) for item in value)
    if origin is Mapping:
        return {**value}
    if origin is frozenset:
        return frozenset(_decoded(arguments[0], item) for item in value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint.from_json(value) if hasattr(hint, "from_json") else from_json(hint, value)
    if hint is dt.datetime:
        return dt.datetime.fromisoformat(value)
    return Path(value) if hint is Path else value


@functools.cache
def _names(cls: type) -> Mapping[str, str]:
    return {field.name: field.metadata.get(_NAME, field.name) for field in dataclasses.fields(cls)}


@functools.cache
def _hints(cls: type) -> Mapping[str, Any]:
    return typing.get_type_hints(cls)


def _has_default(cls: type, name: str) -> bool:
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)
