"""`headwater doctor`: the state of everything that Headwater needs, one line each, with the remedy."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output
from headwater.model.errors import SettingsError
from headwater.model.json_codec import to_json

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.config.load import PipelineFile

_BROKEN = 3


def doctor(
    out: Output,
    flags: ProjectFlags,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE|DIR]…", help="Pipelines whose sources to check. Default: the project's folder."),
    ] = None,
) -> None:
    """Check the environment, and show remedies.

    Java, libraries, memory, disk, the progress store, the catalog and every source. Exits 3 if one is broken.
    """
    from headwater.cli.project import load_all_pipelines, open_project
    from headwater.config.load import pipeline_files
    from headwater.services.doctor import Finding, all_ok, examine

    findings: list[Finding] = []

    def show(finding: Finding) -> None:
        findings.append(finding)
        if not out.json:
            remedy = f"\n    → {finding.remedy}" if finding.remedy else ""
            out.value(None, f"{'✓' if finding.ok else '✗'} {finding.subject}: {finding.found}{remedy}")

    with open_project(flags, out, paths or []) as project:
        files: list[PipelineFile] = []
        for path in paths or pipeline_files(project.folder):
            try:
                files.extend(load_all_pipelines(flags, [path]))
            except SettingsError as error:
                show(
                    Finding(f"settings in {path}", ok=False, found=str(error), remedy=f"fix it: headwater check {path}")
                )
        pipelines = [project.pipeline(file.settings, file.folder) for file in files]

        def store() -> str:
            return f"{project.store.address} answers; pipelines in it: {len(project.store.pipelines())}"

        sources = {pipeline.name: partial(_check_source, pipeline) for pipeline in pipelines}
        for finding in examine(project.settings, project.folder, store, sources):
            show(finding)
    if out.json:
        out.value({"ok": all_ok(findings), "findings": to_json(findings)}, "")
    raise typer.Exit(0 if all_ok(findings) else _BROKEN)


def _check_source(pipeline: Pipeline) -> str:
    """Plan the next window: the cheapest request that the source must answer."""
    plan = pipeline.plan()
    warnings = f"; {'; '.join(plan.warnings)}" if plan.warnings else ""
    return f"answers{'' if plan.window else ', nothing new'}{warnings}"
