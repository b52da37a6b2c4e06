"""Whether a server is ready for change capture: pure functions from facts to findings, each with the SQL that mends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "note"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question. `missing` keeps the server from being ready, `note` is worth knowing."""

    subject: str
    state: State
    found: str
    remedy: str = ""
    sql: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """What is to be captured with. Without a publication any will do; without a slot one will be made."""

    publication: str | None = None
    slot: str | None = None


def is_ready(findings: Sequence[Finding]) -> bool:
    return all(finding.state != "missing" for finding in findings)


def ok(subject: str, found: str) -> Finding:
    return Finding(subject, "ok", found)


def missing(subject: str, found: str, remedy: str, *sql: str) -> Finding:
    return Finding(subject, "missing", found, remedy, sql)


def note(subject: str, found: str, remedy: str = "", *sql: str) -> Finding:
    return Finding(subject, "note", found, remedy, sql)
