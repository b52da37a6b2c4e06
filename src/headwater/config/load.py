"""Loads settings files, and describes them as JSON Schema. Reports every problem of every file at once, with its line (G12)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from headwater.config.pipeline import PipelineSettings
from headwater.config.problems import every_setting, expectation_at, settings_error, text_problems, value_problems
from headwater.config.project import ProjectSettings
from headwater.config.settings import Settings, describe_fields
from headwater.config.yaml_text import Document, read_documents
from headwater.model.errors import SettingsProblem, closest, did_you_mean

PROJECT_FILE = "headwater.yaml"
_SUFFIXES = {".yaml", ".yml"}
_NO_OVERRIDES: Mapping[str, str] = {}

AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline and its file; relative paths in its settings start at `folder`."""

    settings: PipelineSettings
    file: Path
    line: int

    @property
    def folder(self) -> Path:
        return self.file.parent


def load_pipelines(paths: Sequence[Path], environment: Mapping[str, str] = os.environ) -> tuple[PipelineFile, ...]:
    """Every pipeline of the files and folders. Raises one SettingsError with all problems."""
    problems: list[SettingsProblem] = []
    files: list[PipelineFile] = []
    for file in _files(paths, problems):
        files.extend(_load_file(file, environment, problems))
    problems.extend(_duplicate_names(files))
    if problems:
        raise settings_error(problems)
    return tuple(files)


def load_project(
    folder: Path, overrides: Mapping[str, str] = _NO_OVERRIDES, *, environment: Mapping[str, str] = os.environ
) -> ProjectSettings:
    """What pipelines share. A flag beats the environment, that beats headwater.yaml, that beats the default."""
    file = folder / PROJECT_FILE
    problems: list[SettingsProblem] = []
    document = Document(value={})
    if file.exists():
        documents = _read(file, environment, problems)
        if len(documents) > 1:
            problems.append(SettingsProblem(str(file), 1, 1, "", "only one document belongs here; remove the '---'"))
        document = next(iter(documents), document)
    all_overrides = [*environment_overrides(environment), *flag_overrides(overrides)]
    problems.extend(apply_overrides(document, all_overrides))
    problems.extend(text_problems(document, str(file)))
    settings = _validate(ProjectSettings, document, str(file), problems)
    if problems or settings is None:
        raise settings_error(problems)
    return settings


def pipeline_files(folder: Path) -> Sequence[Path]:
    """The folder's YAML files, headwater.yaml left out."""
    return sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.name != PROJECT_FILE)


def project_folder(paths: Sequence[Path]) -> Path:
    """The folder of headwater.yaml: that of the first pipeline, else the current one."""
    if not paths:
        return Path.cwd()
    first = paths[0].absolute()
    return first if first.is_dir() else first.parent


def _files(paths: Sequence[Path], problems: list[SettingsProblem]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = pipeline_files(path)
            if not files:
                message = "the folder holds no pipeline; write one, for example orders.yaml, or name another folder"
                problems.append(SettingsProblem(str(path), 0, 0, "", message))
            yield from files
        else:
            yield path


def _load_file(file: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> Iterator[PipelineFile]:
    documents = _read(file, environment, problems)
    for document in documents:
        problems.extend(text_problems(document, str(file)))
        settings = _validate(PipelineSettings, document, str(file), problems)
        if settings is not None:
            yield PipelineFile(settings, file, document.nearest(("pipeline",)).line)


def _read(file: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> list[Document]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        siblings = {p.stem: p.name for p in pipeline_files(file.parent)} if file.parent.is_dir() else {}
        similar = siblings.get(closest(file.stem, list(siblings)) or "")
        message = f"no such file; did you mean '{similar}'?" if similar else "no such file; check the path"
        problems.append(SettingsProblem(str(file), 0, 0, "", message))
        return []
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        message = f"byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8 text"
        problems.append(SettingsProblem(str(file), before.count(b"\n") + 1, column, "", message))
        return []
    except OSError as error:
        message = f"cannot be read ({(error.strerror or type(error).__name__).lower()}); check its permissions"
        problems.append(SettingsProblem(str(file), 0, 0, "", message))
        return []
    documents = list(read_documents(text, environment))
    if not documents:
        message = "the file is empty; a pipeline has at least pipeline:, source: and sinks:"
        if file.name == PROJECT_FILE:
            return []
        problems.append(SettingsProblem(str(file), 1, 1, "", message))
    return documents


def _validate(
    model: type[AnySettings], document: Document, file: str, problems: list[SettingsProblem]
) -> AnySettings | None:
    if document.value is None:
        return None
    if not isinstance(document.value, dict):
        position = document.nearest(())
        message = f"expected settings, such as {next(iter(model.model_fields))}: …"
        problems.append(SettingsProblem(file, position.line, position.column, "", message))
        return None
    try:
        settings = model.model_validate(document.value)
    except ValidationError as error:
        problems.extend(value_problems(error, model, document, file))
        return None
    return None if document.mistakes else settings


def _duplicate_names(files: Sequence[PipelineFile]) -> Iterator[SettingsProblem]:
    first: dict[str, Any] = {}
    for pipeline in files:
        name = pipeline.settings.pipeline
        other = first.setdefault(name, pipeline)
        if other is not pipeline:
            message = (
                f"{other.file}:{other.line} has a pipeline '{name}' too; they would share their progress: rename one"
            )
            yield SettingsProblem(str(pipeline.file), pipeline.line, 1, "pipeline", message)


PREFIX = "HEADWATER_"
_SIMILARITY = 0.85  # a typing error, not a variable of another program


@dataclass(frozen=True)
class Override:
    """A setting from the environment or a flag, with its name there."""

    origin: str  # `HEADWATER_LAKE__WAREHOUSE`, `--set lake.warehouse`
    path: tuple[str, ...]
    text: str


def environment_overrides(environment: Mapping[str, str]) -> Iterator[Override]:
    """Variables whose first part names a project setting, or nearly does; others belong to other programs."""
    fields = list(ProjectSettings.model_fields)
    for name, text in sorted(environment.items()):
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if name.startswith(PREFIX) and (path[0] in fields or closest(path[0], fields, _SIMILARITY)):
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
        owner = expectation_at(ProjectSettings, path[:depth]).model
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


def _put(value: dict[str, Any], path: tuple[str, ...], replacement: Any) -> None:
    for name in path[:-1]:
        inner = value.get(name)
        value[name] = inner = dict(inner) if isinstance(inner, dict) else {}
        value = inner
    value[path[-1]] = replacement


SUBJECTS: Mapping[str, type[Settings]] = {"pipeline": PipelineSettings, "project": ProjectSettings}
_TITLES = {"pipeline": "A Headwater pipeline", "project": "What Headwater pipelines share (headwater.yaml)"}


def json_schema(subject: str) -> dict[str, Any]:
    """The schema of a `pipeline` file or of the `project` file, with the descriptions that the docs have."""
    root = SUBJECTS[subject]
    schema = root.model_json_schema(mode="validation")
    definitions = {root.__name__: schema, **schema.get("$defs", {})}
    for model in _models(root):
        for name, text in describe_fields(model).items():
            if name in definitions[model.__name__]["properties"]:
                definitions[model.__name__]["properties"][name]["description"] = text
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": _TITLES[subject]}


def _models(root: type[Settings]) -> Iterator[type[Settings]]:
    yield root
    yield from {owner: None for _, _, owner in every_setting(root) if owner is not root}
