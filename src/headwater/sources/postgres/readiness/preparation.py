"""What is asked of a preparation, and what comes out of it: statements to run, and notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.secret import Secret


@dataclass(frozen=True)
class Request:
    """What shall be there."""

    publication: str
    role: str | None = None
    role_password: Secret | None = None
    slot: str | None = None
    lacking: str | None = None  # the identity of every table that has none: `full`
    identities: Mapping[int, str] = field(default_factory=dict)  # by oid: `full`, `default` or an index
    via_root: bool | None = None  # None: where a table is partitioned


@dataclass(frozen=True)
class Statement:
    """One statement. What is shown is what runs, but for a password."""

    text: str
    password_of: str | None = None  # the role whose password it sets; the text holds a mask (G11)
    alone: bool = False  # PostgreSQL refuses it in a transaction that has written


@dataclass(frozen=True)
class Preparation:
    """What to run, in this order, and what is worth knowing about it."""

    statements: tuple[Statement, ...]
    notices: tuple[str, ...]
