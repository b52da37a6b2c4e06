"""Settings files → settings. Every problem of every file is reported at once, with its place (G12)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from headwater.config.expected import closest
from headwater.config.frozen import Settings
from headwater.config.overrides import apply_overrides, environment_overrides, flag_overrides
from headwater.config.pipeline import PipelineSettings
from headwater.config.problems import settings_error, text_problems, value_problems
from headwater.config.project import ProjectSettings
from headwater.config.yaml_text import Document, read_documents
from headwater.model.errors import SettingsProblem

PROJECT_FILE = "headwater.yaml"
_SUFFIXES = {".yaml", ".yml"}
_NOTHING: Mapping[str, str] = {}

AnySettings = TypeVar("AnySettings", bound=Settings)


@dataclass(frozen=True)
class FoundPipeline:
    """A pipeline and where it was found; relative paths in its settings start at `folder`."""

    settings: PipelineSettings
    file: Path
    line: int

    @property
    def folder(self) -> Path:
        return self.file.parent


def load_pipeline(path: Path, environment: Mapping[str, str] = os.environ) -> tuple[PipelineSettings, ...]:
    """The pipelines of one file: one, or several documents separated by `---`. Raises SettingsError."""
    return tuple(found.settings for found in load_pipelines([path], environment))


def load_folder(path: Path, environment: Mapping[str, str] = os.environ) -> tuple[FoundPipeline, ...]:
    """Every pipeline of the folder's YAML files, headwater.yaml left out. Raises SettingsError."""
    return load_pipelines([path], environment)


def load_pipelines(paths: Sequence[Path], environment: Mapping[str, str] = os.environ) -> tuple[FoundPipeline, ...]:
    """Every pipeline of the files and folders. Raises one SettingsError with the problems of all of them."""
    problems: list[SettingsProblem] = []
    found: list[FoundPipeline] = []
    for file in _files(paths, problems):
        found.extend(_load_file(file, environment, problems))
    problems.extend(_same_names(found))
    if problems:
        raise settings_error(problems)
    return tuple(found)


def load_project(
    folder: Path, overrides: Mapping[str, str] = _NOTHING, *, environment: Mapping[str, str] = os.environ
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
    given = [*environment_overrides(environment), *flag_overrides(overrides)]
    problems.extend(apply_overrides(document, given))
    problems.extend(text_problems(document, str(file)))
    settings = _checked(ProjectSettings, document, str(file), problems)
    if problems or settings is None:
        raise settings_error(problems)
    return settings


def pipeline_files(folder: Path) -> Sequence[Path]:
    """The folder's YAML files, headwater.yaml left out."""
    return sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.name != PROJECT_FILE)


def project_folder(paths: Sequence[Path]) -> Path:
    """Where headwater.yaml is looked for: beside the first pipeline, else here."""
    if not paths:
        return Path.cwd()
    first = paths[0].absolute()
    return first if first.is_dir() else first.parent


def _files(paths: Sequence[Path], problems: list[SettingsProblem]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            files = pipeline_files(path)
            if not files:
                message = "the folder holds no pipeline; write one, for example content.yaml, or name another folder"
                problems.append(SettingsProblem(str(path), 0, 0, "", message))
            yield from files
        else:
            yield path


def _load_file(file: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> Iterator[FoundPipeline]:
    documents = _read(file, environment, problems)
    for document in documents:
        problems.extend(text_problems(document, str(file)))
        settings = _checked(PipelineSettings, document, str(file), problems)
        if settings is not None:
            yield FoundPipeline(settings, file, document.nearest(("pipeline",)).line)


def _read(file: Path, environment: Mapping[str, str], problems: list[SettingsProblem]) -> list[Document]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        siblings = {p.stem: p.name for p in pipeline_files(file.parent)} if file.parent.is_dir() else {}
        meant = siblings.get(closest(file.stem, list(siblings)) or "")
        message = f"no such file; did you mean '{meant}'?" if meant else "no such file; check the path"
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


def _checked(
    model: type[AnySettings], document: Document, file: str, problems: list[SettingsProblem]
) -> AnySettings | None:
    if document.value is None:
        return None
    if not isinstance(document.value, dict):
        place = document.nearest(())
        message = f"expected settings, such as {next(iter(model.model_fields))}: …"
        problems.append(SettingsProblem(file, place.line, place.column, "", message))
        return None
    try:
        settings = model.model_validate(document.value)
    except ValidationError as error:
        problems.extend(value_problems(error, model, document, file))
        return None
    return None if document.mistakes else settings


def _same_names(found: Sequence[FoundPipeline]) -> Iterator[SettingsProblem]:
    first: dict[str, Any] = {}
    for pipeline in found:
        name = pipeline.settings.pipeline
        other = first.setdefault(name, pipeline)
        if other is not pipeline:
            message = (
                f"{other.file}:{other.line} has a pipeline '{name}' too; they would share their progress: rename one"
            )
            yield SettingsProblem(str(pipeline.file), pipeline.line, 1, "pipeline", message)
