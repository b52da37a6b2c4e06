"""Which worker is meant: a flag, a variable, headwater.yaml, the local stack, or the usual place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.config.connect import ConnectSettings
from headwater.services.stack import Stack

VARIABLE = "HEADWATER_CONNECT_URL"
SETTING = "HEADWATER_CONNECT__URL"  # as every setting of headwater.yaml has one
USUAL = "http://localhost:8083"
STACK = Path(".headwater/stack")


@dataclass(frozen=True)
class Address:
    """A worker's address, and how we came to it."""

    url: str
    origin: str


def find_worker(flag: str | None, environment: Mapping[str, str], settings: ConnectSettings, folder: Path) -> Address:
    """The first of these that says one; `folder` is the project's."""
    if flag:
        return Address(flag, "--url")
    if environment.get(VARIABLE):
        return Address(environment[VARIABLE], VARIABLE)
    if settings.url:
        return Address(settings.url, SETTING if environment.get(SETTING) else "headwater.yaml")
    running = _of_the_stack(folder / STACK)
    if running:
        return Address(running, f"the stack in {folder / STACK}")
    return Address(USUAL, "the default")


def _of_the_stack(folder: Path) -> str | None:
    for server in Stack(folder).status():
        if server.name == "connect" and server.state == "running":
            return server.address["url"]
    return None
