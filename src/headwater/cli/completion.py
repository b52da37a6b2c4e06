"""Shell completion of pipeline names, from the store of the current folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.model.errors import HeadwaterError


def complete_names(incomplete: str) -> list[str]:
    """Names in the store that begin so. A shell that completes must never see an error, so trouble gives none."""
    from headwater.config.loading import load_project  # noqa: PLC0415 - only a shell that completes pays for it
    from headwater.progress.opening import open_store  # noqa: PLC0415

    try:
        store = open_store(load_project(Path.cwd()).progress_levels, Path.cwd())
        try:
            return [name for name in store.pipelines() if name.startswith(incomplete)]
        finally:
            store.close()
    except (HeadwaterError, OSError):
        return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.", autocompletion=complete_names)]
