"""Variables in a `.env` file: `NAME=value` a line, quotes and `export` allowed, nothing is expanded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headwater.model.errors import InputError

_LINE = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<value>.*)")
_DOUBLE_QUOTED = re.compile(r'"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE_QUOTED = re.compile(r"'(?P<value>[^']*)'\s*(?:#.*)?")
_ESCAPED = {"n": "\n", "t": "\t"}


def read_dotenv(file: Path) -> Mapping[str, str]:
    """The file's variables. What is wrong is told by its line, never by what stands in it (G11)."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise InputError(f"{file} cannot be read: {why}", hint="write --env FILE with the right path") from None
    variables = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        value = None if match is None else _value(match["value"])
        if match is None or value is None:
            raise InputError(f"{file}:{number}: no variable stands there", hint="write NAME=value, or NAME='value'")
        variables[match["name"]] = value
    return variables


def _value(text: str) -> str | None:
    if text.startswith("'"):
        quoted = _SINGLE_QUOTED.fullmatch(text)
        return quoted["value"] if quoted else None
    if text.startswith('"'):
        quoted = _DOUBLE_QUOTED.fullmatch(text)
        return re.sub(r"\\(.)", lambda m: _ESCAPED.get(m[1], m[1]), quoted["value"]) if quoted else None
    # Passwords may hold the sign: only after a space it begins a comment.
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
