"""What is wrong with a document, in words for people: every problem at once, each with its place and its remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from headwater.config.expected import Path, Spot, closest, describe, did_you_mean, homes, literals, spot_at
from headwater.config.frozen import Settings, one_of
from headwater.config.yaml_text import Document
from headwater.model.errors import SettingsError, SettingsProblem
from headwater.model.secret import masked

_SHOWN = 40  # characters of a wrong value; the file has the rest


def settings_error(problems: Sequence[SettingsProblem]) -> SettingsError:
    return SettingsError("\n".join(map(str, problems)), problems=tuple(problems))


def text_problems(document: Document, file: str) -> list[SettingsProblem]:
    """What is wrong with the YAML itself."""
    return [
        SettingsProblem(file, mistake.place.line, mistake.place.column, dotted(mistake.path), mistake.message)
        for mistake in document.mistakes
    ]


def value_problems(
    error: ValidationError, model: type[Settings], document: Document, file: str
) -> list[SettingsProblem]:
    """What is wrong with the values, one problem per place, in the order of the file."""
    reported = {mistake.path for mistake in document.mistakes}
    found = [
        (path, detail)
        for path, detail in _located(error, document.value)
        if not any(path[: len(broken)] == broken for broken in reported)
    ]
    unknown = [path for path, detail in found if detail["type"] == "extra_forbidden"]
    problems = []
    for path, detail in found:
        spot = spot_at(model, path)
        if detail["type"] == "missing" and _is_misspelt(path, unknown):
            continue
        place = document.nearest(path)
        if detail["type"] not in {"missing", "extra_forbidden"}:
            place = document.values.get(path, place)
        message = _message(path, detail, spot, model, document)
        if origin := document.origin(path):
            problems.append(SettingsProblem(origin, 0, 0, dotted(path), message))
        else:
            problems.append(SettingsProblem(file, place.line, place.column, dotted(path), message))
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def dotted(path: Path) -> str:
    """`sinks[1].iceberg.table`; positions are counted from 1, as people do."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _located(error: ValidationError, value: Any) -> Iterator[tuple[Path, ErrorDetails]]:
    """What pydantic complains about by path of the file, one each: of a union's branches only the one that was meant."""
    details: dict[Path, ErrorDetails] = {}
    branched: set[Path] = set()
    for detail in error.errors(include_url=False):
        path, branches = _path(detail, value)
        branched |= branches
        details.setdefault(path, detail)
    for path, detail in details.items():
        # A mapping was written: the branch that wants a text has nothing to say.
        if path in branched and any(len(other) > len(path) and other[: len(path)] == path for other in details):
            continue
        yield path, detail


def _path(detail: ErrorDetails, value: Any) -> tuple[Path, set[Path]]:
    path: Path = ()
    branches: set[Path] = set()
    parts = detail["loc"]
    for index, part in enumerate(parts):
        inside = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if inside or (isinstance(value, dict) and part in value):
            value = value[part]
        elif not (index == len(parts) - 1 and detail["type"] == "missing"):
            branches.add(path)  # the name of a union's branch, not of anything in the file
            continue
        path = (*path, part)
    return path, branches


def _is_misspelt(missing: Path, unknown: Sequence[Path]) -> bool:
    siblings = [path[-1] for path in unknown if path[:-1] == missing[:-1]]
    return closest(str(missing[-1]), [str(name) for name in siblings]) is not None


def _message(path: Path, detail: ErrorDetails, spot: Spot, model: type[Settings], document: Document) -> str:  # noqa: PLR0911 - one line per kind of mistake
    found = _found(detail["input"], document.written.get(path), spot)
    match detail["type"]:
        case "missing":
            return f"missing; write for example {path[-1]}: {_example(spot)}"
        case "extra_forbidden":
            return _unknown(path, model)
        case "value_error":
            reason = masked(document.without_variables(str(detail["ctx"]["error"])))
            return f"{found.removeprefix(', ')}: {reason}" if found and document.written.get(path) else reason
        case "literal_error":
            words = literals(spot.annotation)
            return f"expected {describe(spot.annotation)}{found}{did_you_mean(str(detail['input']), words)}"
        case "too_short" | "string_too_short":
            return f"empty; write for example {path[-1]}: {_example(spot)}"
        case "greater_than":
            return f"expected a number above {detail['ctx']['gt']}{found}"
        case "greater_than_equal":
            return f"expected {detail['ctx']['ge']} or more{found}"
        case "string_pattern_mismatch":
            return f"not of the right form; write for example {path[-1]}: {_example(spot)}{found}"
    return f"expected {describe(spot.annotation)}{found}{_as_mapping(spot, document.written.get(path))}"


def _as_mapping(spot: Spot, written: str | None) -> str:
    # `- console` is the start of the right thing.
    return f"; write {written}: {{…}}" if spot.model and written in spot.model.model_fields else ""


def _unknown(path: Path, model: type[Settings]) -> str:
    owner = spot_at(model, path[:-1]).model or model
    name, known = str(path[-1]), list(owner.model_fields)
    if places := homes(model, name):  # before what is only spelt alike here
        return f"unknown {owner.called}; it belongs at {one_of(places)}"
    if hint := did_you_mean(name, known):
        return f"unknown {owner.called}{hint}"
    return f"unknown {owner.called}; known here: {', '.join(known)}"


def _example(spot: Spot) -> str:
    if spot.field is not None and spot.field.examples:
        return str(spot.field.examples[0])
    return f"… ({describe(spot.annotation)})"


def _found(value: Any, written: str | None, spot: Spot) -> str:
    if isinstance(value, dict | list):
        return f", found {'a mapping' if isinstance(value, dict) else 'a list'}"
    if value is None:
        return ", found nothing"
    if spot.secret or written is None:
        return ""
    # G11: the text as it stands in the file, never what a variable put into it.
    shown = masked(written)
    return f", found '{shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}'"
