"""The name of a moment in a source's log, which becomes a tag on every table of the lake."""

from __future__ import annotations

import re

from headwater.model.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BRANCHES = ("main", "hw_")  # the tables' own, and those that a landing stands on for a moment


def check_label(text: str) -> None:
    """Raise InputError for a text that cannot be a tag's name, or would not be found by it."""
    problem = label_problem(text)
    if problem:
        raise InputError(f"{text!r} cannot be a label: {problem}", hint="write for example month-end-2026-03")


def label_problem(text: str) -> str:
    """What is wrong with it; empty: nothing."""
    if not _NAME.fullmatch(text):
        return "it has 1 to 128 letters (a-z), digits, '.', '_' or '-', and begins with a letter or a digit"
    if text.isdigit():
        return "engines take a number for the number of a snapshot"  # SELECT … VERSION AS OF '42'
    if text.lower() == _BRANCHES[0] or text.startswith(_BRANCHES[1]):
        return "branches of the tables have such names"
    return ""
