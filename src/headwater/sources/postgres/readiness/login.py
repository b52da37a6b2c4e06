"""What flags say about where a PostgreSQL server is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Login:
    """What the flags leave open, variables named POSTGRESQL_… say (see `address`)."""

    url: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password_env: str | None = None
    databases: tuple[str, ...] = ()
    env_file: Path | None = None
