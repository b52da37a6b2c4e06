"""From the addresses in the settings to a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headwater.model.errors import InputError, closest
from headwater.model.protocols.store import Store
from headwater.model.secret import Secret, masked
from headwater.progress.file import FileProgress
from headwater.progress.memory import MemoryProgress
from headwater.progress.multilevel import MultilevelProgress
from headwater.progress.record_store import RecordStore
from headwater.progress.sqlite import SqliteProgress

SCHEMES = ("memory", "file", "sqlite", "postgresql")
_EXAMPLES = "memory: · file:///absolute/folder · sqlite:///progress.db · postgresql://user@host/database"


def open_store(addresses: Sequence[Secret], folder: Path) -> Store:
    """The store at one address, or the levels of several, of which the last decides.

    Relative paths start at `folder`. Nothing is touched yet: stores connect at first use.
    """
    if not addresses:
        raise InputError("progress: no address", hint=f"write one of {_EXAMPLES}")
    levels = [_level(address, folder) for address in addresses]
    if len(levels) == 1:
        return levels[0]
    if isinstance(levels[-1], MemoryProgress):
        raise InputError(
            "progress: the last of several levels decides, and memory: is lost when the process ends",
            hint="put memory: first and a durable store last",
        )
    return MultilevelProgress(levels[:-1], levels[-1])


def _level(address: Secret, folder: Path) -> RecordStore:
    text = address.reveal().strip()
    scheme, colon, rest = text.partition(":")
    match scheme if colon else "":
        case "memory" if not rest:
            return MemoryProgress()
        case "file":
            return FileProgress(folder / _path(text, rest, "file:folder or file:///absolute/folder"))
        case "sqlite" if rest.startswith("///") and rest not in {"///", "///:memory:"}:
            return SqliteProgress(folder / rest[3:])
        case "postgresql" | "postgres" if rest.startswith("//"):
            # The driver is slow to import.
            from headwater.progress.postgres import PostgresProgress

            return PostgresProgress(address)
        case _:
            raise _invalid_address(text, scheme)


def _path(text: str, rest: str, example: str) -> str:
    if rest.startswith("//") and not rest.startswith("///"):
        raise InputError(f"progress: {masked(text)} names a host, but a folder is expected", hint=f"write {example}")
    path = rest.removeprefix("//")
    if not path:
        raise InputError(f"progress: {masked(text)} names no folder", hint=f"write {example}")
    return path


def _invalid_address(text: str, scheme: str) -> InputError:
    # A mistyped address that holds a password may be too odd to be masked (G11).
    address = f"{re.split('[:/@]', text)[0]}…" if "@" in text else masked(text)
    if scheme in SCHEMES:
        return InputError(f"progress: {address} is incomplete", hint=f"write one of {_EXAMPLES}")
    suggestion = closest(scheme, SCHEMES)
    guess = f"did you mean {suggestion}:? " if suggestion else ""
    return InputError(f"progress: {address} is not a store address", hint=f"{guess}use one of {_EXAMPLES}")
