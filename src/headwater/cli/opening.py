"""From what a user typed to the project and the pipelines that are meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output
from headwater.model.errors import SettingsError, SettingsProblem, UnknownName

if TYPE_CHECKING:
    from headwater.api import Pipeline, Project
    from headwater.config.loading import FoundPipeline
    from headwater.engine.log import Log


@contextmanager
def opened_project(
    flags: ProjectFlags, out: Output, paths: Sequence[Path] = (), log: Log | None = None
) -> Iterator[Project]:
    """The project, closed after the block. Sinks that print do so on stderr when stdout carries JSON."""
    from headwater.api import Project  # noqa: PLC0415 - other commands must not pay for the engine
    from headwater.config.loading import project_folder  # noqa: PLC0415

    folder = flags.folder.absolute() if flags.folder else project_folder(paths)
    shown = out.err if out.json else out.out
    with Project.open(folder, overrides=flags.overrides, log=log, say=out.say, out=shown) as project:
        yield project


def checked_pipelines(flags: ProjectFlags, paths: Sequence[Path]) -> Sequence[FoundPipeline]:
    """The pipelines of the files and folders. Problems of headwater.yaml and of all files come in one error."""
    from headwater.config.loading import load_pipelines, load_project, project_folder  # noqa: PLC0415
    from headwater.config.problems import settings_error  # noqa: PLC0415

    problems: list[SettingsProblem] = []
    found: Sequence[FoundPipeline] = ()
    try:
        load_project(flags.folder or project_folder(paths), flags.overrides)
    except SettingsError as error:
        problems.extend(error.problems)
    try:
        found = load_pipelines(paths)
    except SettingsError as error:
        problems.extend(error.problems)
    if problems:
        raise settings_error(problems)
    return found


def known_name(project: Project, name: str) -> str:
    """The name, if the store or a file beside headwater.yaml knows it. Raises UnknownName with the closest one."""
    stored = list(project.store.pipelines())
    if name in stored:
        return name
    written = [found.settings.pipeline for found in _in_folder(project.folder)[0]]
    if name in written:
        return name
    raise unknown_pipeline(name, [*stored, *written], f"{project.store.address} or {project.folder}")


def pipeline_named(project: Project, name: str, file: Path | None) -> Pipeline:
    """The pipeline of that name, from the file given or from those of the project's folder."""
    from headwater.config.loading import load_pipelines  # noqa: PLC0415

    found, wrong = (load_pipelines([file]), []) if file else _in_folder(project.folder)
    for candidate in found:
        if candidate.settings.pipeline == name:
            return project.pipeline(candidate.settings, candidate.folder)
    for error in wrong:
        raise error  # it may be the file that is meant
    raise unknown_pipeline(name, [f.settings.pipeline for f in found], str(file or project.folder), "--file FILE")


def pipelines_meant(project: Project, given: Sequence[str]) -> Sequence[Pipeline]:
    """Those of files and folders, or by name; none given: all of the project's folder."""
    from headwater.config.loading import load_pipelines  # noqa: PLC0415

    meant: list[Pipeline] = []
    for text in given:
        if Path(text).exists():
            meant += [project.pipeline(found.settings, found.folder) for found in load_pipelines([Path(text)])]
        else:
            meant.append(pipeline_named(project, text, None))
    if not given:
        here, wrong = _in_folder(project.folder)
        for error in () if here else wrong:
            raise error
        meant = [project.pipeline(found.settings, found.folder) for found in here]
    return meant


def unknown_pipeline(name: str, known: Sequence[str], where: str, way_out: str = "--project DIR") -> UnknownName:
    from headwater.config.expected import did_you_mean  # noqa: PLC0415

    hint = f"known: {', '.join(sorted(set(known)))}" if known else f"none is known there; look elsewhere with {way_out}"
    return UnknownName(f"no pipeline '{name}' in {where}{did_you_mean(name, known)}", hint=hint)


def _in_folder(folder: Path) -> tuple[Sequence[FoundPipeline], Sequence[SettingsError]]:
    """The pipelines of the folder's files, and what is wrong with the files that cannot be read."""
    from headwater.config.loading import load_pipelines, pipeline_files  # noqa: PLC0415

    found: list[FoundPipeline] = []
    wrong: list[SettingsError] = []
    for file in pipeline_files(folder):
        try:
            found.extend(load_pipelines([file]))
        except SettingsError as error:
            wrong.append(error)
    return found, wrong
