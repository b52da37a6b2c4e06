"""The problems of a document, in words for people: what is wrong, on which line, and which value is expected there."""

from __future__ import annotations

import datetime as dt
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from headwater.config.settings import SecretText, Settings, looks_secret, one_of
from headwater.config.yaml_text import Document
from headwater.model.errors import SettingsError, SettingsProblem, closest, did_you_mean
from headwater.model.secret import masked

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
class Expectation:
    """The type at a path of a file, its field, and the settings that own it."""

    annotation: Any
    field: FieldInfo | None = None
    owner: type[Settings] | None = None
    secret: bool = False

    @property
    def model(self) -> type[Settings] | None:
        return next((member for member in alternatives(self.annotation) if _is_settings(member)), None)


def expectation_at(root: type[Settings], path: Path) -> Expectation:
    """Follow a path from the root; an unknown rest of the path is ignored."""
    expected = Expectation(root)
    for key in path:
        expected = _step(expected, key)
    return expected


def describe(annotation: Any) -> str:
    """`a whole number`, `append, merge or replace`, `a list of texts`."""
    return one_of([_describe(member) for member in alternatives(annotation)])


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union without None; anything else is its own only member."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return [alternative for member in typing.get_args(annotation) for alternative in alternatives(member)]
    return [] if annotation is type(None) else [annotation]


def literals(annotation: Any) -> list[str]:
    """The words allowed, if words are among the alternatives."""
    members = alternatives(annotation)
    return [str(word) for member in members if typing.get_origin(member) is Literal for word in typing.get_args(member)]


def setting_paths(root: type[Settings], name: str) -> list[str]:
    """The paths at which a setting of that name exists."""
    return [".".join(path) for path, _, _ in every_setting(root) if path[-1] == name]


def every_setting(
    root: type[Settings], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo, type[Settings]]]:
    """Path, field and owner of every setting; `[]` marks the items of a list."""
    for name, field in root.model_fields.items():
        path = (*prefix, name)
        yield path, field, root
        for member in alternatives(field.annotation):
            item = typing.get_args(member)[0] if typing.get_origin(member) is list else None
            if _is_settings(member):
                yield from every_setting(member, path)
            elif _is_settings(item):
                yield from every_setting(item, (*prefix, f"{name}[]"))


def _step(expected: Expectation, key: str | int) -> Expectation:
    for member in alternatives(expected.annotation):
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if _is_settings(member) and key in member.model_fields:
            field = member.model_fields[str(key)]
            return Expectation(
                field.annotation, field, member, expected.secret or SecretText in _leaves(field.annotation)
            )
        if origin is list and isinstance(key, int):
            return Expectation(arguments[0], expected.field, expected.owner, expected.secret)
        if origin is dict:
            return Expectation(arguments[1], expected.field, expected.owner, expected.secret or looks_secret(str(key)))
    return expected


def _leaves(annotation: Any) -> list[Any]:
    return [
        leaf
        for member in alternatives(annotation)
        for leaf in (_leaves(typing.get_args(member)[0]) if typing.get_origin(member) is list else [member])
    ]


def _describe(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return one_of([str(word) for word in arguments])
    if origin is list:
        item = arguments[0]
        if _is_settings(item):
            return f"a list, each item on a line that begins with '- ' and names one {item.called}"
        return f"a list of {_WORDS[item][1]}" if item in _WORDS else "a list"
    if origin is dict:
        return "a mapping of names to texts"
    if _is_settings(annotation):
        return f"a mapping with {one_of(list(annotation.model_fields))}"
    return _WORDS[annotation][0] if annotation in _WORDS else str(annotation)


def _is_settings(annotation: Any) -> typing.TypeGuard[type[Settings]]:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


_MAX_VALUE_LENGTH = 40  # characters of a wrong value; the file has the rest


def settings_error(problems: Sequence[SettingsProblem]) -> SettingsError:
    return SettingsError("\n".join(map(str, problems)), problems=tuple(problems))


def text_problems(document: Document, file: str) -> list[SettingsProblem]:
    """Mistakes in the YAML itself."""
    return [
        SettingsProblem(file, mistake.position.line, mistake.position.column, dotted(mistake.path), mistake.message)
        for mistake in document.mistakes
    ]


def value_problems(
    error: ValidationError, model: type[Settings], document: Document, file: str
) -> list[SettingsProblem]:
    """Mistakes in the values, one per line and column, in the order of the file."""
    reported = {mistake.path for mistake in document.mistakes}
    located = [
        (path, detail)
        for path, detail in _locate(error, document.value)
        if not any(path[: len(broken)] == broken for broken in reported)
    ]
    unknown = [path for path, detail in located if detail["type"] == "extra_forbidden"]
    problems = []
    for path, detail in located:
        expected = expectation_at(model, path)
        if detail["type"] == "missing" and _is_misspelt(path, unknown):
            continue
        position = document.nearest(path)
        if detail["type"] not in {"missing", "extra_forbidden"}:
            position = document.values.get(path, position)
        message = _message(path, detail, expected, model, document)
        if origin := document.origin(path):
            problems.append(SettingsProblem(origin, 0, 0, dotted(path), message))
        else:
            problems.append(SettingsProblem(file, position.line, position.column, dotted(path), message))
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def dotted(path: Path) -> str:
    """`sinks[1].iceberg.table`; positions are counted from 1, as people do."""
    text = ""
    for key in path:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


def _locate(error: ValidationError, value: Any) -> Iterator[tuple[Path, ErrorDetails]]:
    """Pydantic's errors by path of the file, one each: of a union only the branch that fits best."""
    details: dict[Path, ErrorDetails] = {}
    branched: set[Path] = set()
    for detail in error.errors(include_url=False):
        path, branches = _path(detail, value)
        branched |= branches
        details.setdefault(path, detail)
    for path, detail in details.items():
        # A mapping was written: errors of the text branch do not matter.
        if path in branched and any(len(other) > len(path) and other[: len(path)] == path for other in details):
            continue
        yield path, detail


def _path(detail: ErrorDetails, value: Any) -> tuple[Path, set[Path]]:
    path: Path = ()
    branches: set[Path] = set()
    keys = detail["loc"]
    for index, key in enumerate(keys):
        inside = isinstance(value, list) and isinstance(key, int) and key < len(value)
        if inside or (isinstance(value, dict) and key in value):
            value = value[key]
        elif not (index == len(keys) - 1 and detail["type"] == "missing"):
            branches.add(path)  # the name of a union's branch, not of anything in the file
            continue
        path = (*path, key)
    return path, branches


def _is_misspelt(missing: Path, unknown: Sequence[Path]) -> bool:
    siblings = [path[-1] for path in unknown if path[:-1] == missing[:-1]]
    return closest(str(missing[-1]), [str(name) for name in siblings]) is not None


def _message(path: Path, detail: ErrorDetails, expected: Expectation, model: type[Settings], document: Document) -> str:  # noqa: PLR0911 - one line per kind of mistake
    value_text = _value_text(detail["input"], document.written.get(path), expected)
    match detail["type"]:
        case "missing":
            return f"missing; write for example {path[-1]}: {_example(expected)}"
        case "extra_forbidden":
            return _unknown(path, model)
        case "value_error":
            reason = masked(document.without_variables(str(detail["ctx"]["error"])))
            return f"{value_text.removeprefix(', ')}: {reason}" if value_text and document.written.get(path) else reason
        case "literal_error":
            words = literals(expected.annotation)
            return f"expected {describe(expected.annotation)}{value_text}{did_you_mean(str(detail['input']), words)}"
        case "too_short" | "string_too_short":
            return f"empty; write for example {path[-1]}: {_example(expected)}"
        case "greater_than":
            return f"expected a number above {detail['ctx']['gt']}{value_text}"
        case "greater_than_equal":
            return f"expected {detail['ctx']['ge']} or more{value_text}"
        case "string_pattern_mismatch":
            return f"not of the right form; write for example {path[-1]}: {_example(expected)}{value_text}"
    return f"expected {describe(expected.annotation)}{value_text}{_mapping_hint(expected, document.written.get(path))}"


def _mapping_hint(expected: Expectation, written: str | None) -> str:
    # `- console` is the start of the right thing.
    return f"; write {written}: {{…}}" if expected.model and written in expected.model.model_fields else ""


def _unknown(path: Path, model: type[Settings]) -> str:
    owner = expectation_at(model, path[:-1]).model or model
    name, known = str(path[-1]), list(owner.model_fields)
    if name in owner.removed:
        return owner.removed[name]
    if paths := setting_paths(model, name):  # before a similar name here
        return f"unknown {owner.called}; it belongs at {one_of(paths)}"
    if hint := did_you_mean(name, known):
        return f"unknown {owner.called}{hint}"
    return f"unknown {owner.called}; known here: {', '.join(known)}"


def _example(expected: Expectation) -> str:
    if expected.field is not None and expected.field.examples:
        return str(expected.field.examples[0])
    return f"… ({describe(expected.annotation)})"


def _value_text(value: Any, written: str | None, expected: Expectation) -> str:
    if isinstance(value, dict | list):
        return f", found {'a mapping' if isinstance(value, dict) else 'a list'}"
    if value is None:
        return ", found nothing"
    if expected.secret or written is None:
        return ""
    # G11: the text of the file, never the value of a variable.
    text = masked(written)
    return f", found '{text if len(text) <= _MAX_VALUE_LENGTH else text[:_MAX_VALUE_LENGTH] + '…'}'"
