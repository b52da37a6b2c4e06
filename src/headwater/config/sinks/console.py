"""Settings of the `console` sink."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headwater.config.settings import Settings


class ConsoleSinkSettings(Settings):
    """Print rows, to see what a pipeline reads."""

    limit: int = Field(default=20, ge=0)
    """Rows shown per stream and window."""
    format: Literal["table", "json"] = "table"
    """table: columns for people. json: one object a line."""
