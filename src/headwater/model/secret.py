"""Values that must never be shown (G11), and the masking of addresses that hold one."""

from __future__ import annotations

import re

MASK = "****"
_USERINFO = re.compile(
    r"(?P<scheme>[a-zA-Z][\w+.:-]*://)(?P<user>[^:/?#@\s]*):(?P<password>.+)@(?=[^@/\s]*(?:[/?#\s]|$))"
)
_SECRET_PARAMETER = re.compile(
    r"(?i)\b(?P<name>\w*(?:password|passwd|pwd|secret|token|access_key))=(?P<value>[^&;\s]+)"
)


class Secret:
    """A text that prints as ****; `reveal()` is the only way to it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def masked(text: str) -> str:
    """The text with the passwords of every address and `password=` parameter in it replaced."""
    text = _USERINFO.sub(lambda m: f"{m['scheme']}{m['user']}:{MASK}@", text)
    return _SECRET_PARAMETER.sub(lambda m: f"{m['name']}={MASK}", text)
