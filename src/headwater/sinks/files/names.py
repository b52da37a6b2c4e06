"""Names of streams and pipelines as names of folders: safe on every file system, one to one."""

from __future__ import annotations

import hashlib
import re

_SAFE = re.compile(r"[A-Za-z0-9._\-]")
_LONGEST = 150  # file systems end at 255 bytes


def folder_name(name: str) -> str:
    """Percent-encoded UTF-8; never `.` or `..`, never hidden from readers by a leading `.` or `_`."""
    encoded = "".join(c if _SAFE.fullmatch(c) else "".join(f"%{byte:02X}" for byte in _bytes(c)) for c in name)
    if encoded[:1] in {".", "_"}:
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    if len(encoded) > _LONGEST:
        encoded = f"{encoded[: _LONGEST - 17]}-{_digest(name)}"
    return encoded


def tag(pipeline: str) -> str:
    """A short name of a pipeline, for hidden files."""
    return _digest(pipeline)[:10]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(text: str) -> str:
    return hashlib.sha256(_bytes(text)).hexdigest()[:16]
