"""Project settings from outside the file: `HEADWATER_LAKE__WAREHOUSE=…` and flags; they win over the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.config.expected import closest, did_you_mean, spot_at
from headwater.config.project import ProjectSettings
from headwater.config.yaml_text import Document, read_documents
from headwater.model.errors import SettingsProblem

PREFIX = "HEADWATER_"
_NEARLY = 0.85  # how alike: a slip of the finger, not a name of somebody else's


@dataclass(frozen=True)
class Override:
    """One setting given from outside, and how the user knows it."""

    origin: str  # `HEADWATER_LAKE__WAREHOUSE`, `--set lake.warehouse`
    path: tuple[str, ...]
    text: str


def environment_overrides(environment: Mapping[str, str]) -> Iterator[Override]:
    """Variables whose first part names a project setting, or nearly does; others belong to somebody else."""
    fields = list(ProjectSettings.model_fields)
    for name, text in sorted(environment.items()):
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if name.startswith(PREFIX) and (path[0] in fields or closest(path[0], fields, _NEARLY)):
            yield Override(name, path, text)


def flag_overrides(flags: Mapping[str, str]) -> Iterator[Override]:
    for name, text in flags.items():
        yield Override(f"--set {name}", tuple(name.split(".")), text)


def apply_overrides(document: Document, overrides: Sequence[Override]) -> Iterator[SettingsProblem]:
    """Write them into the document, later ones over earlier ones; report those that name no setting."""
    for override in overrides:
        refusal = _refusal(override.path)
        if refusal:
            yield SettingsProblem(override.origin, 0, 0, ".".join(override.path), refusal)
        elif isinstance(document.value, dict):
            document.supersede(override.path, override.origin)
            _put(document.value, override.path, _value(override.text))


def _refusal(path: tuple[str, ...]) -> str:
    for depth, name in enumerate(path):
        owner = spot_at(ProjectSettings, path[:depth]).model
        if owner is not None and name not in owner.model_fields:
            return f"unknown setting{did_you_mean(name, list(owner.model_fields))}"
    return ""


def _value(text: str) -> Any:
    # A list or mapping is written as in the file: HEADWATER_PROGRESS='["memory:", "postgresql://…"]'
    if text.lstrip().startswith(("[", "{")):
        documents = list(read_documents(text, {}))
        if len(documents) == 1 and not documents[0].mistakes:
            return documents[0].value
    return text


def _put(value: dict[str, Any], path: tuple[str, ...], given: Any) -> None:
    for name in path[:-1]:
        inner = value.get(name)
        value[name] = inner = dict(inner) if isinstance(inner, dict) else {}
        value = inner
    value[path[-1]] = given
