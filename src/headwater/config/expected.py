"""What may be written at a place of a settings file, in words for people."""

from __future__ import annotations

import datetime as dt
import difflib
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from pydantic.fields import FieldInfo

from headwater.config.frozen import SecretText, Settings, looks_secret, one_of

Path = tuple[str | int, ...]

_WORDS: dict[object, tuple[str, str]] = {
    str: ("a text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    SecretText: ("a text", "texts"),
    dt.timedelta: ("a duration such as 5s or 10m", "durations"),
}


@dataclass(frozen=True)
class Spot:
    """What a path of a file leads to: the type there, its field, and the settings it is part of."""

    annotation: Any
    field: FieldInfo | None = None
    owner: type[Settings] | None = None
    secret: bool = False

    @property
    def model(self) -> type[Settings] | None:
        return next((kind for kind in alternatives(self.annotation) if _is_settings(kind)), None)


def spot_at(root: type[Settings], path: Path) -> Spot:
    """Follow a path from the root; where the path leaves what is known, the last known type stands."""
    spot = Spot(root)
    for part in path:
        spot = _step(spot, part)
    return spot


def describe(annotation: Any) -> str:
    """`a whole number`, `append, merge or replace`, `a list of texts`."""
    return one_of([_describe(kind) for kind in alternatives(annotation)])


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union without None; anything else is its own only member."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return [kind for member in typing.get_args(annotation) for kind in alternatives(member)]
    return [] if annotation is type(None) else [annotation]


def literals(annotation: Any) -> list[str]:
    """The words that may be written, if words are among the alternatives."""
    kinds = alternatives(annotation)
    return [str(word) for kind in kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'cursor'?`, or nothing."""
    close = closest(name, known)
    return f"; did you mean '{close}'?" if close else ""


def closest(name: str, known: Sequence[str], alike: float = 0.6) -> str | None:
    by_lower = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), by_lower, n=1, cutoff=alike)
    return by_lower[found[0]] if found else None


def homes(root: type[Settings], name: str) -> list[str]:
    """The paths at which a setting of that name exists."""
    return [".".join(path) for path, _, _ in every_setting(root) if path[-1] == name]


def every_setting(
    root: type[Settings], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo, type[Settings]]]:
    """Path, field and owner of every setting; `[]` stands for the items of a list."""
    for name, field in root.model_fields.items():
        path = (*prefix, name)
        yield path, field, root
        for kind in alternatives(field.annotation):
            item = typing.get_args(kind)[0] if typing.get_origin(kind) is list else None
            if _is_settings(kind):
                yield from every_setting(kind, path)
            elif _is_settings(item):
                yield from every_setting(item, (*prefix, f"{name}[]"))


def _step(spot: Spot, part: str | int) -> Spot:
    for kind in alternatives(spot.annotation):
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if _is_settings(kind) and part in kind.model_fields:
            field = kind.model_fields[str(part)]
            return Spot(field.annotation, field, kind, spot.secret or SecretText in _leaves(field.annotation))
        if origin is list and isinstance(part, int):
            return Spot(arguments[0], spot.field, spot.owner, spot.secret)
        if origin is dict:
            return Spot(arguments[1], spot.field, spot.owner, spot.secret or looks_secret(str(part)))
    return spot


def _leaves(annotation: Any) -> list[Any]:
    return [
        leaf
        for kind in alternatives(annotation)
        for leaf in (_leaves(typing.get_args(kind)[0]) if typing.get_origin(kind) is list else [kind])
    ]


def _describe(kind: Any) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return one_of([str(word) for word in arguments])
    if origin is list:
        item = arguments[0]
        if _is_settings(item):
            return f"a list, each item on a line that begins with '- ' and names one {item.called}"
        return f"a list of {_WORDS[item][1]}" if item in _WORDS else "a list"
    if origin is dict:
        return "a mapping of names to texts"
    if _is_settings(kind):
        return f"a mapping with {one_of(list(kind.model_fields))}"
    return _WORDS[kind][0] if kind in _WORDS else str(kind)


def _is_settings(kind: Any) -> typing.TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)
