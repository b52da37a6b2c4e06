"""Timeouts, retries and error texts that every use of obstore shares."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.storage.container import ObjectVersion

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

CONNECT_SECONDS = 5.0
READ_SECONDS = 25.0  # without a single byte
RETRY_SECONDS = 15.0  # no retry begins later
_MAX_REQUEST = timedelta(hours=12)  # for one object; READ_SECONDS detects a server that stalls
_STATUS = re.compile(r"status code: (\d+)")
_CAUSE = re.compile(r'(?:message|error): "([^"]*)"')

RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=RETRY_SECONDS),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=3), "base": 2},
}


def client_options(*, allow_http: bool, ca_bundle: str | None = None) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=READ_SECONDS),
        "timeout": _MAX_REQUEST,
    }
    if ca_bundle:
        options["root_certificate"] = Path(ca_bundle).read_bytes()
    return options


def get(store: ObjectStore, version: ObjectVersion, byte_range: tuple[int, int] | None) -> bytes:
    """The object, or a range of it, if it still has that version. Raises obstore's errors."""
    options: GetOptions = {"if_match": f'"{version.etag}"'}
    if byte_range is not None:
        options["range"] = byte_range
    return store.get(version.key, options=options).bytes().to_bytes()


def status_of(error: str) -> int | None:
    """The HTTP status, if the server answered. obstore's errors are texts: a line, the body of the response, the causes."""
    match = _STATUS.search(error)
    return int(match[1]) if match else None


def cause_of(error: str) -> str:
    """The innermost cause, without the response, which may repeat credentials (G11)."""
    if "TimedOut" in error or "kind: Timeout" in error:
        return "timed out"
    if "InvalidCertificate" in error:
        return "the server's certificate is not trusted"
    causes = _CAUSE.findall(error)
    return causes[-1] if causes else error.splitlines()[0].rpartition(" - ")[2]
