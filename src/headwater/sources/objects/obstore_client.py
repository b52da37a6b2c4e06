"""What every use of obstore shares: how long it tries, and what its errors say."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.sources.objects.container import ObjectVersion

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

CONNECT_SECONDS = 5.0
READ_SECONDS = 25.0  # without a single byte
PATIENCE_SECONDS = 15.0  # after which nothing is tried again
_LONGEST = timedelta(hours=12)  # for one whole object; a server that stalls is noticed by READ_SECONDS
_STATUS = re.compile(r"status code: (\d+)")
_CAUSE = re.compile(r'(?:message|error): "([^"]*)"')

RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=PATIENCE_SECONDS),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=3), "base": 2},
}


def client_options(*, allow_http: bool, ca_bundle: str | None = None) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=READ_SECONDS),
        "timeout": _LONGEST,
    }
    if ca_bundle:
        options["root_certificate"] = Path(ca_bundle).read_bytes()
    return options


def get(store: ObjectStore, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
    """The object, or a part of it, if it still is the version. Raises obstore's own errors."""
    options: GetOptions = {"if_match": f'"{version.etag}"'}
    if part is not None:
        options["range"] = part
    return store.get(version.key, options=options).bytes().to_bytes()


def status_of(error: str) -> int | None:
    """The server's answer, if there was one. Errors are texts: a line, the answer's body, and how it came to it."""
    found = _STATUS.search(error)
    return int(found[1]) if found else None


def cause_of(error: str) -> str:
    """Without the server's answer, which may repeat credentials (G11)."""
    if "TimedOut" in error or "kind: Timeout" in error:
        return "timed out"
    if "InvalidCertificate" in error:
        return "the server's certificate is not trusted"
    causes = _CAUSE.findall(error)
    return causes[-1] if causes else error.splitlines()[0].rpartition(" - ")[2]
