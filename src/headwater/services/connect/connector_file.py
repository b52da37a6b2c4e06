"""Files of connectors → connectors: the shapes that Connect itself takes, with `${NAME}` from the environment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.config.problems import settings_error
from headwater.model.errors import SettingsProblem

CLASS = "connector.class"
# A name alone is ours; with a provider before it (`${file:/path:key}`, `${env:NAME}`) the worker's own.
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}|(?P<reference>\$\{[^{}:]+:[^{}]*\})|(?P<broken>\$\{)"
)
_BETWEEN = re.compile(r"[\s,]*")
_BESIDE = {"name", "config", "tasks", "type"}  # the last two are what a worker adds when it is asked for a connector


@dataclass(frozen=True)
class Connector:
    """A connector as it should be."""

    name: str
    config: Mapping[str, str] = field(repr=False)  # its name among them; may hold secrets
    written: Mapping[str, str] = field(repr=False)  # as in the file, before variables were replaced
    file: str = ""
    span: tuple[int, int] = (0, 0)  # where it stands in the file's text

    @property
    def kind(self) -> str:
        return self.config[CLASS]


def read_connectors(paths: Sequence[Path], environment: Mapping[str, str] = os.environ) -> tuple[Connector, ...]:
    """The connectors of the files: one, or a list. Raises one SettingsError with the problems of all of them."""
    problems: list[SettingsProblem] = []
    found: list[Connector] = []
    for path in paths:
        found.extend(_File(path, environment, problems).connectors())
    first: dict[str, str] = {}
    for connector in found:
        if connector.name in first:
            message = f"{first[connector.name]} has a connector '{connector.name}' too; rename one, or leave it out"
            problems.append(SettingsProblem(connector.file, 0, 0, "name", message))
        first.setdefault(connector.name, connector.file)
    if problems:
        raise settings_error(problems)
    return tuple(found)


def problem_of(connector: Connector, key: str, message: str) -> SettingsProblem:
    """What is wrong with one of its settings, with its place in the file."""
    text = Path(connector.file).read_text(encoding="utf-8-sig")
    return SettingsProblem(connector.file, *_place(text, key, connector.span), key, message)


class _File:
    def __init__(self, path: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> None:
        self._path, self._environment, self._problems = path, environment, problems
        self._text, self._span = "", (0, 0)

    def connectors(self) -> Iterator[Connector]:
        document = self._document()
        if document is None:
            return
        many = document if isinstance(document, list) else [document]
        if not many:
            self._problem("", "the list is empty; write at least one connector")
        for position, (item, span) in enumerate(zip(many, _spans(self._text), strict=True), start=1):
            self._span = span
            connector = self._connector(item, f"[{position}]." if isinstance(document, list) else "")
            if connector:
                yield connector

    def _document(self) -> Any:
        try:
            self._text = self._path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            self._problem("", "not UTF-8; save the file as UTF-8 text")
            return None
        except OSError as error:
            self._problem("", f"cannot be read ({(error.strerror or '').lower()}); check the path")
            return None
        try:
            # Numbers as they are written: to Connect every value is a text.
            return json.loads(self._text, parse_int=str, parse_float=str, object_pairs_hook=self._pairs)
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg.lower()}"
            self._problems.append(SettingsProblem(str(self._path), error.lineno, error.colno, "", message))
            return None

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            self._problem(name, "written twice; keep one of them")
        return dict(pairs)

    def _connector(self, item: Any, before: str) -> Connector | None:
        if not isinstance(item, dict):
            self._problem(before.rstrip("."), 'expected a connector: {"name": …, "config": {…}}')
            return None
        count = len(self._problems)
        config, name = item, item.get("name")
        if isinstance(item.get("config"), dict):
            config = item["config"]
            name = name or config.get("name")
            if config.get("name", name) != name:
                self._problem(f"{before}config.name", f"the connector is called '{name}' above; write one name")
            for unknown in sorted(item.keys() - _BESIDE):
                self._problem(f"{before}{unknown}", "does not belong beside name and config; settings stand in config")
        if not isinstance(name, str) or not name.strip():
            self._problem(f"{before}name", 'a connector needs a name; write "name": "shop"')
            return None
        written = {key: self._value(f"{before}{key}", value) for key, value in config.items() if key != "name"}
        if not written.get(CLASS):
            self._problem(f"{before}{CLASS}", "missing: the class of the connector; see headwater connect plugins")
        replaced = {key: self._replaced(f"{before}{key}", value) for key, value in written.items()}
        if len(self._problems) > count:
            return None
        return Connector(name, {**replaced, "name": name}, {**written, "name": name}, str(self._path), self._span)

    def _value(self, path: str, value: Any) -> str:
        match value:
            case str():
                return value
            case bool():
                return "true" if value else "false"
            case None:
                self._problem(path, "null is no value; write one, or leave the setting out")
            case _:
                self._problem(path, 'expected a text; a list is written as "a,b"')
        return ""

    def _replaced(self, path: str, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            if match["broken"]:
                self._problem(path, "a variable is ${NAME} or ${NAME:-default}; write $${ for a plain ${")
                return ""
            if match["reference"]:
                return match["reference"]
            name, default = match["name"], match["default"]
            if name is None:
                return "${"
            value = self._environment.get(name)
            if default is not None:
                return value or default[2:]
            if value is None:
                message = f"the environment has no variable {name}; set it, here or in .env, or write $${{{name}}} if the connector is to see ${{{name}}}"
                self._problem(path, message)
            return value or ""

        return _VARIABLE.sub(replace, text)

    def _problem(self, path: str, message: str) -> None:
        key = re.sub(r"^(\[\d+\]\.)?(config\.)?", "", path)
        self._problems.append(SettingsProblem(str(self._path), *_place(self._text, key, self._span), path, message))


def _spans(text: str) -> list[tuple[int, int]]:
    """Where the connectors of a document begin and end: it is one, or a list of them."""
    at, scan = len(text) - len(text.lstrip()), json.JSONDecoder().raw_decode
    if text[at] != "[":
        return [(at, len(text))]
    spans = []
    while begin := _BETWEEN.match(text, at + 1):
        if text[begin.end()] == "]":
            break
        at = scan(text, begin.end())[1] - 1
        spans.append((begin.end(), at + 1))
    return spans


def _place(text: str, key: str, span: tuple[int, int]) -> tuple[int, int]:
    """Line and column of the first setting of that name there; 0, 0 where there is none."""
    begin, end = span if any(span) else (0, len(text))
    at = text.find(json.dumps(key, ensure_ascii=False), begin, end) if key else -1
    return (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)) if at >= 0 else (0, 0)
