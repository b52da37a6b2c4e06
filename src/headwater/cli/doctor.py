"""`headwater doctor`: what stands around Headwater, one line each, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.command import ProjectFlags
from headwater.cli.output import Output
from headwater.model.errors import SettingsError

if TYPE_CHECKING:
    from headwater.api import Pipeline
    from headwater.config.loading import FoundPipeline

_BROKEN = 3


def doctor(
    out: Output,
    flags: ProjectFlags,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE|DIR]…", help="Whose sources are asked. Default: the project's folder."),
    ] = None,
) -> None:
    """Check everything that is needed, and say what to do.

    Java, libraries, memory, disk, the progress store, the catalog and every source. Exits 3 if one is broken.
    """
    from headwater.cli.opening import checked_pipelines, opened_project  # noqa: PLC0415 - not paid for by --help
    from headwater.config.loading import pipeline_files  # noqa: PLC0415
    from headwater.services.doctor import Finding, all_well, examine  # noqa: PLC0415

    findings: list[Finding] = []

    def show(finding: Finding) -> None:
        findings.append(finding)
        if not out.json:
            remedy = f"\n    → {finding.remedy}" if finding.remedy else ""
            out.value(None, f"{'✓' if finding.ok else '✗'} {finding.subject}: {finding.found}{remedy}")

    with opened_project(flags, out, paths or []) as project:
        found: list[FoundPipeline] = []
        for path in paths or pipeline_files(project.folder):
            try:
                found.extend(checked_pipelines(flags, [path]))
            except SettingsError as error:
                show(
                    Finding(
                        f"settings in {path}", ok=False, found=str(error), remedy=f"correct it: headwater check {path}"
                    )
                )
        pipelines = [project.pipeline(one.settings, one.folder) for one in found]

        def store() -> str:
            return f"{project.store.address} answers; pipelines in it: {len(project.store.pipelines())}"

        sources = {pipeline.name: _asking(pipeline) for pipeline in pipelines}
        for finding in examine(project.settings, project.folder, store, sources):
            show(finding)
    if out.json:
        data = [{"subject": f.subject, "ok": f.ok, "found": f.found, "remedy": f.remedy} for f in findings]
        out.value({"ok": all_well(findings), "findings": data}, "")
    raise typer.Exit(0 if all_well(findings) else _BROKEN)


class _asking:  # noqa: N801 - read as a verb
    """Asks the pipeline's source for its next window: the cheapest question that needs an answer."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __call__(self) -> str:
        plan = self._pipeline.plan()
        warned = f"; {'; '.join(plan.warnings)}" if plan.warnings else ""
        return f"answers{'' if plan.window else ', nothing new'}{warned}"
