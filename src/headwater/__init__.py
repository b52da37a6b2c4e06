"""Headwater keeps an Apache Iceberg lakehouse in step with operational systems."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.api import Pipeline, Project, open_source, open_store, run_forever, run_once, window
    from headwater.progress.bookmark_file import Bookmark, Bookmarks

__all__ = [
    "Bookmark",
    "Bookmarks",
    "Pipeline",
    "Project",
    "open_source",
    "open_store",
    "run_forever",
    "run_once",
    "window",
]
__version__ = "0.1.0"

_HOMES = {
    "Bookmark": "headwater.progress.bookmark_file",
    "Bookmarks": "headwater.progress.bookmark_file",
    "Pipeline": "headwater.api",
    "Project": "headwater.api",
    "open_source": "headwater.api",
    "open_store": "headwater.api",
    "run_forever": "headwater.api",
    "run_once": "headwater.api",
    "window": "headwater.api",
}


def __getattr__(name: str) -> object:
    # Imported on first use: `headwater --version` and an idle poll must not pay for what they do not touch.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")
