"""Pipeline names as file names: different names never share a file, on any file system."""

from __future__ import annotations

import hashlib
import string

_KEPT = frozenset((string.ascii_lowercase + string.digits + "-_").encode())
_LONGEST = 180  # bytes; leaves room for suffixes below the usual limit of 255
_PREFIX = 100


def file_stem(pipeline: str) -> str:
    """Lower-case letters, digits, `-` and `_` as they are, every other byte of the UTF-8 text as `%xx`.

    Capitals are escaped too, because some file systems take `a` and `A` for one name, and so are dots,
    slashes and everything that a file system might normalise. What becomes too long is cut and told apart
    by a digest behind `~`, a character that no other stem has.
    """
    data = pipeline.encode()
    stem = "".join(chr(byte) if byte in _KEPT else f"%{byte:02x}" for byte in data)
    if len(stem) <= _LONGEST:
        return stem
    return f"{stem[:_PREFIX]}~{hashlib.sha256(data).hexdigest()}"
