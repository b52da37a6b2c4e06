"""Sizes as people write them: `500MB`, `4GB`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB)?", re.IGNORECASE)
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _size(value: object) -> object:
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(float(found[1]) * _SIZES[(found[2] or "B").upper()]) if found else value


Bytes = Annotated[int, BeforeValidator(_size)]
