"""Which settings of connectors are secrets, and how settings and messages are shown without them (G11)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from headwater.config.frozen import looks_secret
from headwater.model.secret import MASK, masked

# `${file:/run/secrets/pg:password}`, `${PG_PASSWORD}`: says where the secret is, and may be shown. A default may not.
_REFERENCE = re.compile(r"\$\{(?![^{}]*:-)[^{}]+\}")
_MORE_SECRETS = re.compile(r"(?i)jaas|passphrase|user\.info|(^|[._-])(api[._-]?key|pass|pwd|sas)([._-]|$)|[._-]key$")
_SHORTEST = 4  # shorter values are found in every other word of a message


def is_secret(key: str) -> bool:
    """By the setting's name. The names of classes and converters are none, though `credentials` may stand in them."""
    if key.endswith((".class", ".converter", "schemas.enable")):
        return False
    return looks_secret(key) or bool(_MORE_SECRETS.search(key))


def is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value) is not None


def shown(key: str, value: str, secret: Collection[str] = ()) -> str:
    """A setting for people; `secret` are keys that the connector itself calls so."""
    if value and (key in secret or is_secret(key)) and not is_reference(value):
        return MASK
    return masked(value)


def secret_values(config: Mapping[str, str], secret: Iterable[str] = ()) -> set[str]:
    """Values that no message may repeat."""
    keys = {key for key in config if is_secret(key)} | set(secret)
    values = {config[key] for key in keys if key in config and not is_reference(config[key])}
    return {value for value in values if len(value) >= _SHORTEST}


def without(values: Collection[str], text: str) -> str:
    """The text with every such value masked, and the passwords of addresses."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, MASK)
    return masked(text)
