"""Signed requests to an S3 bucket, with retries. A key is any text, not a path."""

from __future__ import annotations

import datetime as dt
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies, proxy_bypass

from headwater.model.errors import SourceUnreachable
from headwater.storage.container import ObjectVersion
from headwater.storage.obstore_client import CONNECT_SECONDS, READ_SECONDS, RETRY_SECONDS
from headwater.storage.s3.credentials import GetRequest, S3Access, escape_query, sign

if TYPE_CHECKING:
    import urllib3

_BACKOFF_SECONDS = (0.2, 0.4, 0.8, 1.6, 2.0)
_RETRIED_STATUSES = {429, 500, 502, 503, 504}
_OK = range(200, 300)
_CONNECTIONS = 16

_HINTS = {
    "NoSuchBucket": "check the bucket's name and the endpoint",
    "InvalidAccessKeyId": "check that the access key belongs to this endpoint",
    "SignatureDoesNotMatch": "check that secret_key (AWS_SECRET_ACCESS_KEY) belongs to access_key",
    "AccessDenied": "grant the credentials s3:ListBucket on the bucket and s3:GetObject on its objects",
    "ExpiredToken": "renew the session token",
    "RequestTimeTooSkewed": "set this machine's clock",
}


class ErrorResponse(Exception):
    """A response with an error status."""

    def __init__(self, status: int, code: str, message: str, region: str) -> None:
        super().__init__(status, code, message, region)
        self.status = status
        self.code = code  # of S3: NoSuchKey, AccessDenied …; empty: the server sent none
        self.message = message
        self.region = region  # of the bucket, if the server named it; else empty

    @classmethod
    def of(cls, status: int, body: str, region: str = "") -> ErrorResponse:
        """Code and message only: a body may repeat the request's credentials (G11)."""
        fields = re.findall(r"<(Code|Message|Region)>([^<\n]*)", body)
        texts = {name: unescape(text) for name, text in reversed(fields)}
        return cls(status, texts.get("Code", ""), texts.get("Message", ""), region or texts.get("Region", ""))

    def unreachable(self, access: S3Access, action: str) -> SourceUnreachable:
        """For an error that concerns the whole bucket."""
        reason = f"{self.code}: {self.message}" if self.message else self.code
        hint = _HINTS.get(self.code, "check endpoint, region, bucket and credentials")
        if self.region and self.region != access.region:
            hint = f"the bucket is in another region: set region: {self.region}"
        return SourceUnreachable(f"{access}: {action}: {reason or f'HTTP status {self.status}'}", hint=hint)


def no_response(access: S3Access, reason: str) -> SourceUnreachable:
    hint = "check that the server runs at this endpoint and can be reached from here"
    if "certificate" in reason:
        hint = "set AWS_CA_BUNDLE to a file with the certificate of its issuer"
    return SourceUnreachable(f"{access}: {reason}", hint=hint)


@dataclass(frozen=True)
class Response:
    """A response with a success status."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def server_time(self) -> int:
        """The server's clock, in microseconds since 1970."""
        try:
            return round(parsedate_to_datetime(self.headers["date"]).timestamp()) * 1_000_000
        except (KeyError, ValueError):  # HTTP requires the header of servers with a clock
            return time.time_ns() // 1000


class S3Client:
    """For one bucket; several threads may share it."""

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def get(
        self, key: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """An object, or the bucket itself for an empty key. Raises ErrorResponse; SourceUnreachable: no response."""
        deadline = time.monotonic() + RETRY_SECONDS
        for pause in _BACKOFF_SECONDS:
            try:
                return self._send(key, query or {}, headers or {})
            except (ErrorResponse, SourceUnreachable) as error:
                is_final = isinstance(error, ErrorResponse) and error.status not in _RETRIED_STATUSES
                if is_final or time.monotonic() > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - so that many tasks do not retry at once
        return self._send(key, query or {}, headers or {})

    def read(self, version: ObjectVersion, byte_range: tuple[int, int] | None) -> bytes:
        """An object, or a range of it, if it still has that version."""
        headers = {"if-match": f'"{version.etag}"'}
        if byte_range is not None:
            headers["range"] = f"bytes={byte_range[0]}-{byte_range[1] - 1}"
        return self.get(version.key, headers=headers).body

    def _send(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Response:
        import urllib3

        request = GetRequest(self._access.host, self._access.path(key), escape_query(query), headers)
        keys = self._access.credentials.keys()
        signed_headers = headers if keys is None else sign(request, keys, self._access.region, dt.datetime.now(dt.UTC))
        target = f"{request.path}?{request.query}" if request.query else request.path
        if self._pool.proxy and self._pool.scheme == "http":
            target = f"{self._access.endpoint}{target}"
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
        try:
            response = self._pool.urlopen(
                "GET",
                target,
                headers=signed_headers,
                retries=False,
                redirect=False,
                assert_same_host=False,
                decode_content=False,
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as error:
            raise no_response(self._access, innermost_reason(error)) from None
        if response.status not in _OK:
            region = response.headers.get("x-amz-bucket-region", "")
            raise ErrorResponse.of(response.status, response.data.decode(errors="replace"), region)
        return Response(response.headers, response.data)

    @cached_property
    def _pool(self) -> urllib3.HTTPConnectionPool:
        import urllib3

        # Not the manager's `request`: it resolves `..` in paths, which are plain characters of a key.
        options: dict[str, Any] = {"maxsize": _CONNECTIONS}
        if self._access.ca_bundle:
            options["ca_certs"] = self._access.ca_bundle
        proxy = getproxies().get(self._access.endpoint.partition(":")[0])
        if proxy and not proxy_bypass(self._access.host):
            return urllib3.ProxyManager(proxy, **options).connection_from_url(self._access.endpoint)
        return urllib3.PoolManager(**options).connection_from_url(self._access.endpoint)


def innermost_reason(error: BaseException) -> str:
    """`Connection refused` instead of the client's whole chain of causes."""
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    if isinstance(inner, BaseException):
        return innermost_reason(inner)
    return getattr(error, "strerror", None) or str(error)
