"""YAML text → plain values, with line and column of every key and value, and `${NAME}` from the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Path = tuple[str | int, ...]

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_]\w*)(?P<default>:-[^}]*)?\}|(?P<broken>\$\{)")
_INTEGER = re.compile(r"[-+]?\d[\d_]*")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_TAG = "tag:yaml.org,2002:"

# The YAML parser's message → the remedy.
_ADVICE = (
    (r"character '\\t'", "a tab indents this line; YAML wants spaces"),
    ("mapping values are not allowed", "a second ':' in one line; put the value in quotes, or check the indentation"),
    (r"expected ',' or ']'", "a '[' is not closed; write [a, b]"),
    (r"expected ',' or '}'", "a '{' is not closed; write {a: 1, b: 2}"),
    ("unexpected end of stream", "a quote is not closed"),
    ("could not find expected ':'", "a ':' is missing after the setting's name on the line above"),
    (r"block end>, but found", "the indentation does not match the lines above"),
    ("undefined alias", "a value that begins with '*' is an alias in YAML; put it in quotes"),
    ("unknown escape", "a backslash in a text in \"double quotes\"; write 'single quotes' or a double backslash"),
    ("cannot start any token", "a value cannot begin with this character; put it in quotes"),
)


@dataclass(frozen=True)
class Position:
    """A line and a column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Mistake:
    """A mistake in the text itself."""

    position: Position
    path: Path
    message: str


@dataclass
class Document:
    """One YAML document: its value, and the position of each key and value."""

    value: Any = None
    keys: dict[Path, Position] = field(default_factory=dict)
    values: dict[Path, Position] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)  # scalars before any variable was replaced (G11)
    mistakes: list[Mistake] = field(default_factory=list)
    substituted: dict[str, str] = field(default_factory=dict)  # the value of a variable → the variable
    origins: dict[Path, str] = field(default_factory=dict)  # values from a variable or a flag

    def nearest(self, path: Path) -> Position:
        """The position of the path, or of its closest known parent."""
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path) or self.values.get((), Position(1, 1))

    def without_variables(self, message: str) -> str:
        """The message with the variable's name in place of its value, which may be a secret (G11)."""
        for value in sorted(self.substituted, key=len, reverse=True):
            message = message.replace(value, self.substituted[value]) if value else message
        return message

    def supersede(self, path: Path, origin: str) -> None:
        """Record that the value at the path comes from elsewhere, and drop the mistakes of the text there."""
        self.mistakes = [mistake for mistake in self.mistakes if mistake.path[: len(path)] != path]
        self.written = {other: text for other, text in self.written.items() if other[: len(path)] != path}
        self.origins[path] = origin

    def origin(self, path: Path) -> str | None:
        return next((self.origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.origins), None)


def read_documents(text: str, environment: Mapping[str, str]) -> Iterator[Document]:
    """Every document of the text that is not empty. A text that is not YAML yields one document with the mistake."""
    try:
        # Nodes, not values: they have positions, and duplicate keys.
        nodes = list(YAML(typ="safe", pure=True).compose_all(text))
    except MarkedYAMLError as error:
        yield _unreadable(error.problem_mark, _advice(error.problem or error.context or ""))
        return
    except YAMLError:
        yield _unreadable(None, "the text holds a control character; save the file as plain UTF-8 text")
        return
    for node in nodes:
        if isinstance(node, ScalarNode) and node.value == "":
            continue
        document = Document()
        document.value = _Builder(document, environment).build(node, ())
        yield document


class _Builder:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document, self._environment = document, environment
        self._open: list[Node] = []  # an alias may point at what encloses it

    def build(self, node: Node, path: Path) -> Any:
        self._document.values[path] = _position(node)
        self._document.keys.setdefault(path, _position(node))
        if any(node is outer for outer in self._open):
            self._mistake(node, path, "an alias points at its own parent; write the value out")
            return None
        self._open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._scalar(str(node.value), node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged |= self._merge(value, path)
                continue
            name = str(key.value)
            key_path = (*path, name)
            if name in own:
                first = self._document.keys[key_path].line
                self._mistake(key, key_path, f"written twice; the first one is on line {first}: keep one of them")
                continue
            self._document.keys[key_path] = _position(key)
            own[name] = self.build(value, key_path)
        return {**merged, **own}

    def _merge(self, node: Node, path: Path) -> dict[str, Any]:
        parts = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for part in reversed(parts):
            if not isinstance(part, MappingNode):
                self._mistake(part, (*path, "<<"), "expected a mapping to merge; write <<: *name")
                continue
            merged |= self._mapping(part, path)
        return merged

    def _scalar(self, text: str, node: Node, path: Path) -> Any:
        self._document.written[path] = text
        if "${" in text:
            return self._interpolate(text, node, path)
        if getattr(node, "style", None) in {"'", '"', "|", ">"}:
            return text
        return _resolve(text, str(node.tag))

    def _interpolate(self, text: str, node: Node, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            if match["broken"]:
                self._mistake(node, path, "a variable is ${NAME} or ${NAME:-default}; write $${ for a plain ${")
                return ""
            name, default = match["name"], match["default"]
            if name is None:
                return "${"
            value = self._environment.get(name)
            if default is not None:
                return self._remember(name, value) if value else default[2:]
            if value is None:
                self._mistake(
                    node, path, f"the environment has no variable {name}; set it, or write ${{{name}:-default}}"
                )
            return self._remember(name, value or "")

        return _VARIABLE.sub(replace, text)

    def _remember(self, name: str, value: str) -> str:
        self._document.substituted[value] = f"${{{name}}}"
        return value

    def _mistake(self, node: Node, path: Path, message: str) -> None:
        self._document.mistakes.append(Mistake(_position(node), path, message))


def _resolve(text: str, tag: str) -> Any:
    # Dates stay texts: a cursor's type decides what they mean.
    match tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" if _INTEGER.fullmatch(text):
            return int(text)
        case "float" if _FLOAT.fullmatch(text):
            return float(text)
    return text


def _position(node: Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _unreadable(mark: Any, message: str) -> Document:
    document = Document()
    position = Position(mark.line + 1, mark.column + 1) if mark is not None else Position(1, 1)
    document.mistakes.append(Mistake(position, (), message))
    return document


def _advice(problem: str) -> str:
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, problem)), "")
    return f"not valid YAML: {advice or problem}"
