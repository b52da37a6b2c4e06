"""Keys of S3, and AWS's signature, version 4, of a request without a body."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from headwater.model.secret import Secret

_NO_BODY = hashlib.sha256(b"").hexdigest()
_PLAIN = "-_.~"  # what is not escaped beside letters and digits


@dataclass(frozen=True)
class Keys:
    """Credentials that are valid now."""

    access_key: str = field(repr=False)  # no secret by itself, but nothing to show around
    secret_key: Secret
    session_token: Secret | None = None
    expires_at: dt.datetime | None = None


class Credentials(Protocol):
    """Where keys come from; they may be lent for an hour, and be others the next time."""

    def keys(self) -> Keys | None:
        """Valid now; None: sign nothing."""


@dataclass(frozen=True)
class FixedKeys:
    """Keys that somebody wrote down, or none."""

    fixed: Keys | None

    def keys(self) -> Keys | None:
        return self.fixed


def escaped_path(key: str) -> str:
    """Slashes stay, all others are escaped once: S3 wants the very key, with `//` and `..` in it."""
    return quote(key, safe=_PLAIN + "/")


def escaped_query(query: Mapping[str, str]) -> str:
    """In the order in which it is signed."""
    pairs = [f"{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in query.items()]
    return "&".join(sorted(pairs, key=lambda pair: pair.split("=")))


@dataclass(frozen=True)
class Get:
    """A request for an object, or for a listing."""

    host: str
    path: str  # escaped
    query: str  # escaped, in order
    headers: Mapping[str, str]  # names in lower case


def sign(request: Get, keys: Keys, region: str, now: dt.datetime) -> dict[str, str]:
    """The headers to send, the request's own among them."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    sent = {"host": request.host, "x-amz-date": moment, "x-amz-content-sha256": _NO_BODY, **request.headers}
    if keys.session_token is not None:
        sent["x-amz-security-token"] = keys.session_token.reveal()
    names = ";".join(sorted(sent))
    lines = [f"{name}:{' '.join(sent[name].split())}" for name in sorted(sent)]
    whole = "\n".join(["GET", request.path, request.query, *lines, "", names, _NO_BODY])
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(whole.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key.reveal()}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**sent, "authorization": f"AWS4-HMAC-SHA256 {credential}"}
