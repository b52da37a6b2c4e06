"""From command-line arguments to the project and its pipelines."""

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
    from headwater.config.load import PipelineFile
    from headwater.engine.result import Log


@contextmanager
def open_project(
    flags: ProjectFlags, out: Output, paths: Sequence[Path] = (), log: Log | None = None
) -> Iterator[Project]:
    """The project, closed after the block. Sinks print to stderr when stdout carries JSON."""
    from headwater.api import Project
    from headwater.config.load import project_folder

    folder = flags.folder.absolute() if flags.folder else project_folder(paths)
    console = out.err if out.json else out.out
    with Project.open(folder, overrides=flags.overrides, log=log, say=out.say, out=console) as project:
        yield project


def load_all_pipelines(flags: ProjectFlags, paths: Sequence[Path]) -> Sequence[PipelineFile]:
    """The pipelines of the files and folders. One error lists the problems of headwater.yaml and of all files."""
    from headwater.config.load import load_pipelines, load_project, project_folder
    from headwater.config.problems import settings_error

    problems: list[SettingsProblem] = []
    files: Sequence[PipelineFile] = ()
    try:
        load_project(flags.folder or project_folder(paths), flags.overrides)
    except SettingsError as error:
        problems.extend(error.problems)
    try:
        files = load_pipelines(paths)
    except SettingsError as error:
        problems.extend(error.problems)
    if problems:
        raise settings_error(problems)
    return files


def check_name(project: Project, name: str) -> str:
    """The name, if the store or a file beside headwater.yaml has it. Raises UnknownName with the closest one."""
    stored = list(project.store.pipelines())
    if name in stored:
        return name
    in_files = [file.settings.pipeline for file in _folder_pipelines(project.folder)[0]]
    if name in in_files:
        return name
    raise unknown_pipeline(name, [*stored, *in_files], f"{project.store.address} or {project.folder}")


def find_pipeline(project: Project, name: str, file: Path | None) -> Pipeline:
    """The pipeline of that name, from the file given or from those of the project's folder."""
    from headwater.config.load import load_pipelines

    files, errors = (load_pipelines([file]), []) if file else _folder_pipelines(project.folder)
    for candidate in files:
        if candidate.settings.pipeline == name:
            return project.pipeline(candidate.settings, candidate.folder)
    for error in errors:
        raise error  # the pipeline may be in that file
    raise unknown_pipeline(name, [f.settings.pipeline for f in files], str(file or project.folder), "--file FILE")


def select_pipelines(project: Project, arguments: Sequence[str]) -> Sequence[Pipeline]:
    """Pipelines by file, folder or name; without arguments all of the project's folder."""
    from headwater.config.load import load_pipelines

    selected: list[Pipeline] = []
    for text in arguments:
        if Path(text).exists():
            selected += [project.pipeline(file.settings, file.folder) for file in load_pipelines([Path(text)])]
        else:
            selected.append(find_pipeline(project, text, None))
    if not arguments:
        files, errors = _folder_pipelines(project.folder)
        for error in () if files else errors:
            raise error
        selected = [project.pipeline(file.settings, file.folder) for file in files]
    return selected


def unknown_pipeline(name: str, known: Sequence[str], where: str, flag: str = "--project DIR") -> UnknownName:
    from headwater.model.errors import did_you_mean

    hint = f"known: {', '.join(sorted(set(known)))}" if known else f"it has no pipelines; look elsewhere with {flag}"
    return UnknownName(f"no pipeline '{name}' in {where}{did_you_mean(name, known)}", hint=hint)


def _folder_pipelines(folder: Path) -> tuple[Sequence[PipelineFile], Sequence[SettingsError]]:
    """The pipelines of the folder's files, and the errors of files that cannot be read."""
    from headwater.config.load import load_pipelines, pipeline_files

    files: list[PipelineFile] = []
    errors: list[SettingsError] = []
    for path in pipeline_files(folder):
        try:
            files.extend(load_pipelines([path]))
        except SettingsError as error:
            errors.append(error)
    return files, errors
