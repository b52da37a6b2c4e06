"""Connectors: their files with `${NAME}` from the environment, the secrets in them (G11), and the state that a worker reports."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.config.problems import settings_error
from headwater.config.settings import looks_secret
from headwater.model.errors import SettingsProblem
from headwater.model.json_codec import json_name
from headwater.model.position.marks import Json
from headwater.model.secret import MASK, masked

RUNNING, FAILED = "RUNNING", "FAILED"
_SETTLED = {RUNNING, FAILED, "PAUSED", "STOPPED"}
_CAUSED_BY = re.compile(r"^Caused by: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Plugin:
    """A connector class on a worker."""

    name: str = field(metadata=json_name("class"))
    type: str  # source, sink
    version: str = ""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Names that Connect accepts for the class: with or without its package, and without `Connector` at its end."""
        simple = self.name.rpartition(".")[2]
        return self.name, simple, simple.removesuffix("Connector")


@dataclass(frozen=True)
class RunState:
    """The state of a connector itself, or of one of its tasks."""

    state: str
    worker: str = field(default="", metadata=json_name("worker_id"))
    trace: str = ""
    task: int | None = field(default=None, metadata=json_name("id"))  # None: the connector itself

    @property
    def error(self) -> str:
        """The first line of the trace."""
        return self.trace.splitlines()[0].strip() if self.trace.strip() else ""

    @property
    def cause(self) -> str:
        """The innermost cause: the first line is often too general."""
        causes: Sequence[str] = _CAUSED_BY.findall(self.trace)
        return causes[-1].strip() if causes else ""


@dataclass(frozen=True)
class ConnectorState:
    """A connector and its tasks, as one worker knows them."""

    name: str
    connector: RunState
    tasks: tuple[RunState, ...]
    type: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(sorted(self.tasks, key=lambda run: run.task or 0)))

    @property
    def runs(self) -> tuple[RunState, ...]:
        return self.connector, *self.tasks

    @property
    def failed(self) -> tuple[RunState, ...]:
        return tuple(run for run in self.runs if run.state == FAILED)

    @property
    def settled(self) -> bool:
        """No start, stop or move is in progress. A running connector has tasks; a stopped one has none."""
        if self.connector.state == RUNNING and not self.tasks:
            return False
        return all(run.state in _SETTLED for run in self.runs) and not self._tasks_pending

    @property
    def _tasks_pending(self) -> bool:
        """Whether the tasks have not reached the connector's state yet."""
        goal = self.connector.state
        if goal == "STOPPED":
            return bool(self.tasks)
        return goal in {RUNNING, "PAUSED"} and any(task.state not in {goal, FAILED} for task in self.tasks)


@dataclass(frozen=True)
class FieldErrors:
    """A connector's errors about one of its settings."""

    field: str
    errors: tuple[str, ...]


@dataclass(frozen=True)
class Validation:
    """A connector class's verdict on settings."""

    problems: tuple[FieldErrors, ...]
    secret: frozenset[str]  # fields of type PASSWORD

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Validation:
        problems, secret = [], set()
        for config in data["configs"]:
            value, definition = config["value"], config.get("definition") or {}
            if definition.get("type") == "PASSWORD":
                secret.add(value["name"])
            if value.get("errors"):
                problems.append(FieldErrors(value["name"], tuple(value["errors"])))
        return cls(tuple(problems), frozenset(secret))


# `${file:/run/secrets/pg:password}` and `${PG_PASSWORD}` only point at a secret and may be shown; a default may not.
_REFERENCE = re.compile(r"\$\{(?![^{}]*:-)[^{}]+\}")
_SECRET_KEY = re.compile(r"(?i)jaas|passphrase|user\.info|(^|[._-])(api[._-]?key|pass|pwd|sas)([._-]|$)|[._-]key$")
_MIN_SECRET_LENGTH = 4  # masking shorter values would garble every message


def is_secret(key: str) -> bool:
    """By the setting's name. Names of classes and converters are not secret, even with `credentials` in them."""
    if key.endswith((".class", ".converter", "schemas.enable")):
        return False
    return looks_secret(key) or bool(_SECRET_KEY.search(key))


def is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def display(key: str, value: str, secret: Collection[str] = ()) -> str:
    """A setting for people; `secret` are keys that the connector declares secret."""
    if value and (key in secret or is_secret(key)) and not is_reference(value):
        return MASK
    return masked(value)


def secret_values(config: Mapping[str, str], secret: Iterable[str] = ()) -> set[str]:
    """Values that must not appear in messages."""
    keys = {key for key in config if is_secret(key)} | set(secret)
    values = {config[key] for key in keys if key in config and not is_reference(config[key])}
    return {value for value in values if len(value) >= _MIN_SECRET_LENGTH}


def mask_values(values: Collection[str], text: str) -> str:
    """The text with these values and the passwords of addresses masked."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return masked(text)


CLASS = "connector.class"
# `${NAME}` is replaced here; `${file:/path:key}` and `${env:NAME}` are replaced by the worker.
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}|(?P<reference>\$\{[^{}:]+:[^{}]*\})|(?P<broken>\$\{)"
)
_SEPARATOR = re.compile(r"[\s,]*")
_TOP_LEVEL = {"name", "config", "tasks", "type"}  # a worker's own output adds the last two


@dataclass(frozen=True)
class Connector:
    """The declared state of a connector."""

    name: str
    config: Mapping[str, str] = field(repr=False)  # including its name; may hold secrets
    written: Mapping[str, str] = field(repr=False)  # as in the file, before variables were replaced
    file: str = ""
    span: tuple[int, int] = (0, 0)  # its range in the file's text

    @property
    def connector_class(self) -> str:
        return self.config[CLASS]


def read_connectors(paths: Sequence[Path], environment: Mapping[str, str] = os.environ) -> tuple[Connector, ...]:
    """The connectors of the files, each one or a list. Raises one SettingsError with all problems."""
    problems: list[SettingsProblem] = []
    connectors: list[Connector] = []
    for path in paths:
        connectors.extend(_File(path, environment, problems).connectors())
    first: dict[str, str] = {}
    for connector in connectors:
        if connector.name in first:
            message = f"{first[connector.name]} has a connector '{connector.name}' too; rename one, or leave it out"
            problems.append(SettingsProblem(connector.file, 0, 0, "name", message))
        first.setdefault(connector.name, connector.file)
    if problems:
        raise settings_error(problems)
    return tuple(connectors)


def problem_of(connector: Connector, key: str, message: str) -> SettingsProblem:
    """A problem with one of its settings, with the line in the file."""
    text = Path(connector.file).read_text(encoding="utf-8-sig")
    return SettingsProblem(connector.file, *_position(text, key, connector.span), key, message)


class _File:
    def __init__(self, path: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> None:
        self._path, self._environment, self._problems = path, environment, problems
        self._text, self._span = "", (0, 0)

    def connectors(self) -> Iterator[Connector]:
        document = self._document()
        if document is None:
            return
        items = document if isinstance(document, list) else [document]
        if not items:
            self._problem("", "the list is empty; write at least one connector")
        for position, (item, span) in enumerate(zip(items, _spans(self._text), strict=True), start=1):
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
            # Numbers as written: Connect takes every value as text.
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

    def _connector(self, item: Any, prefix: str) -> Connector | None:
        if not isinstance(item, dict):
            self._problem(prefix.rstrip("."), 'expected a connector: {"name": …, "config": {…}}')
            return None
        count = len(self._problems)
        config, name = item, item.get("name")
        if isinstance(item.get("config"), dict):
            config = item["config"]
            name = name or config.get("name")
            if config.get("name", name) != name:
                self._problem(f"{prefix}config.name", f"the name above is '{name}'; write one name")
            for unknown in sorted(item.keys() - _TOP_LEVEL):
                self._problem(f"{prefix}{unknown}", "unknown beside name and config; write settings inside config")
        if not isinstance(name, str) or not name.strip():
            self._problem(f"{prefix}name", 'a connector needs a name; write "name": "shop"')
            return None
        written = {key: self._value(f"{prefix}{key}", value) for key, value in config.items() if key != "name"}
        if not written.get(CLASS):
            self._problem(f"{prefix}{CLASS}", "missing: the class of the connector; see headwater connect plugins")
        resolved = {key: self._resolve(f"{prefix}{key}", value) for key, value in written.items()}
        if len(self._problems) > count:
            return None
        return Connector(name, {**resolved, "name": name}, {**written, "name": name}, str(self._path), self._span)

    def _value(self, path: str, value: Any) -> str:
        match value:
            case str():
                return value
            case bool():
                return "true" if value else "false"
            case None:
                self._problem(path, "null is not allowed; write a value, or leave the setting out")
            case _:
                self._problem(path, 'expected a text; a list is written as "a,b"')
        return ""

    def _resolve(self, path: str, text: str) -> str:
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
                message = f"the environment has no variable {name}; set it, here or in .env, or write $${{{name}}} to pass ${{{name}}} to the connector"
                self._problem(path, message)
            return value or ""

        return _VARIABLE.sub(replace, text)

    def _problem(self, path: str, message: str) -> None:
        key = re.sub(r"^(\[\d+\]\.)?(config\.)?", "", path)
        self._problems.append(SettingsProblem(str(self._path), *_position(self._text, key, self._span), path, message))


def _spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each connector in the text."""
    position, scan = len(text) - len(text.lstrip()), json.JSONDecoder().raw_decode
    if text[position] != "[":
        return [(position, len(text))]
    spans = []
    while match := _SEPARATOR.match(text, position + 1):
        if text[match.end()] == "]":
            break
        position = scan(text, match.end())[1] - 1
        spans.append((match.end(), position + 1))
    return spans


def _position(text: str, key: str, span: tuple[int, int]) -> tuple[int, int]:
    """Line and column of the first setting of that name; 0, 0 if absent."""
    begin, end = span if any(span) else (0, len(text))
    position = text.find(json.dumps(key, ensure_ascii=False), begin, end) if key else -1
    return (text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)) if position >= 0 else (0, 0)
