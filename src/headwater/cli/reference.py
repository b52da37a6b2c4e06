"""The pages of docs/reference, written from the code: `python -m headwater.cli.reference`."""

from __future__ import annotations

import datetime as dt
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from typer.main import get_command

from headwater.cli.command import COMMON_FLAGS
from headwater.cli.main import app
from headwater.config.load import SUBJECTS
from headwater.config.problems import alternatives, describe, every_setting
from headwater.config.settings import OneKind, Settings, describe_fields, describe_model, one_of
from headwater.model.errors import HeadwaterError

_HEADER = "<!-- Made by `python -m headwater.cli.reference`; change the code instead. -->"
_RETRY = {"later": "automatically", "operator": "after operator action", "never": "never"}


def pages() -> Mapping[str, str]:
    """File name → content."""
    return {"settings.md": _settings(), "commands.md": _commands(), "errors.md": _errors()}


def _settings() -> str:
    lines = [_HEADER, "# Settings", ""]
    lines += [
        "`headwater schema` prints the same as JSON Schema for editors. `${NAME}` and `${NAME:-default}` are replaced",
        "from the environment; `$${` is a plain `${`. Relative paths start at the file's folder.",
        "A flag beats an environment variable, that beats the file, that beats the default.",
    ]
    titles = {
        "pipeline": "A pipeline file",
        "project": "headwater.yaml, beside the pipelines",
    }
    for subject, root in SUBJECTS.items():
        lines += ["", f"## {titles[subject]}"]
        for prefix, model in _sections(root):
            lines += ["", f"### `{prefix}`" if prefix else "### At the top", "", describe_model(model), ""]
            lines += _setting_table(prefix, model, variables=subject == "project")
    return "\n".join(lines) + "\n"


def _sections(root: type[Settings]) -> Iterator[tuple[str, type[Settings]]]:
    sections: dict[tuple[str, type[Settings]], None] = {("", root): None}
    for path, _, owner in every_setting(root):
        sections.setdefault((".".join(path[:-1]), owner), None)
    yield from sections


def _setting_table(prefix: str, model: type[Settings], *, variables: bool) -> Iterator[str]:
    yield "| setting | value | default | meaning |" + (" variable |" if variables else "")
    yield "| --- | --- | --- | --- |" + (" --- |" if variables else "")
    texts = describe_fields(model)
    for name, field in model.model_fields.items():
        meaning = " ".join(texts.get(name, "").split())
        cells = [f"`{name}`", _value(field), _default(field, model), meaning]
        if variables:
            cells.append(_variable(prefix, name, field))
        yield _cells(*cells)


def _value(field: FieldInfo) -> str:
    return one_of(
        [
            "a mapping, see below" if _is_settings(member) else describe(member)
            for member in alternatives(field.annotation)
        ]
    )


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _default(field: FieldInfo, model: type[Settings]) -> str:
    if field.is_required():
        return "**required**"
    value = field.default
    if value is None:
        return "one of them" if issubclass(model, OneKind) else "–"
    if isinstance(value, Settings):
        return "see below"
    if isinstance(value, dt.timedelta):
        return f"`{value.total_seconds():g}s`"
    text = value.reveal() if hasattr(value, "reveal") else value
    return f"`{text}`" if text not in ([], {}, ()) else "none"


def _variable(prefix: str, name: str, field: FieldInfo) -> str:
    if any(_is_settings(member) for member in alternatives(field.annotation)):
        return ""
    return f"`HEADWATER_{'__'.join(word for word in (*prefix.split('.'), name) if word).upper()}`"


def _commands() -> str:
    root: Any = get_command(app)
    lines = [_HEADER, "# Commands", "", root.help, ""]
    lines += [
        'Every command has `--json`: data to stdout, messages to stderr, and `{"error": {"code", "message", "hint"}}`',
        "on stdout when it fails. `headwater --install-completion` adds completion of commands and pipeline",
        "names to your shell.",
        "",
        "| common to several commands | |",
        "| --- | --- |",
    ]
    lines += [_row(_option(p), p) for p in root.commands["run"].params if p.name in COMMON_FLAGS]
    for name, command in leaves(root):
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        usage = " ".join(["headwater", name, *(_argument(p) for p in arguments), "[OPTIONS]"])
        lines += ["", f"## {name}", "", f"`{usage}`", "", inspect.cleandoc(command.help), ""]
        options = [p for p in command.params if p.param_type_name == "option"]
        rows = [_row(_argument(p), p) for p in arguments]
        rows += [_row(_option(p), p) for p in options if p.name not in COMMON_FLAGS]
        lines += ["| | |", "| --- | --- |", *rows, ""] if rows else []
        lines += [f"Also {', '.join(f'`{p.opts[0]}`' for p in options if p.name in COMMON_FLAGS)}."]
    return "\n".join(lines) + "\n"


def leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name: `rejects list`, not `rejects`."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _row(usage: str, parameter: Any) -> str:
    return _cells(f"`{usage}`", _text(parameter))


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _argument(parameter: Any) -> str:
    usage = parameter.metavar or parameter.name
    return usage if parameter.required or usage.startswith("[") else f"[{usage}]"


def _option(parameter: Any) -> str:
    names = ", ".join(parameter.opts)
    return names if getattr(parameter, "is_flag", False) else f"{names} {parameter.metavar or parameter.name.upper()}"


def _text(parameter: Any) -> str:
    default = parameter.default
    plain = isinstance(default, str | int | Path) and not isinstance(default, bool)
    text = parameter.help or ""
    if plain:
        text += f" Default: `{getattr(default, 'value', default)}`."
    elif parameter.required and parameter.param_type_name == "option":
        text += " Required."
    return text


def _errors() -> str:
    lines = [_HEADER, "# Errors", ""]
    lines += ["Every error has a code, a remedy and an exit code. A running engine retries only where that can help."]
    lines += [""]
    lines += ["| code | exit | retried | meaning |", "| --- | --- | --- | --- |"]
    for error_class in _tree(HeadwaterError):
        meaning = inspect.cleandoc(error_class.__doc__ or "").replace("\n", " ")
        lines.append(f"| `{error_class.code}` | {error_class.exit_code} | {_RETRY[error_class.retry]} | {meaning} |")
    return "\n".join(lines) + "\n"


def _tree(root: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    for error_class in root.__subclasses__():
        if error_class.__module__ == root.__module__:
            yield error_class
            yield from _tree(error_class)


def main(folder: Path) -> None:
    """Write the pages into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (folder / name).write_text(content)


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ["docs/reference"]))
