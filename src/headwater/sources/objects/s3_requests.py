"""Requests to an S3 bucket for which a key is nothing but a text: signed, tried again for a while, errors in our words."""

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
from typing import Any
from urllib.request import getproxies, proxy_bypass

import urllib3

from headwater.model.errors import SourceUnreachable
from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.obstore_client import CONNECT_SECONDS, PATIENCE_SECONDS, READ_SECONDS
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.s3_signing import Get, escaped_query, sign

_PAUSES_SECONDS = (0.2, 0.4, 0.8, 1.6, 2.0)
_AGAIN = {429, 500, 502, 503, 504}
_OK = range(200, 300)
_CONNECTIONS = 16

_HINTS = {
    "NoSuchBucket": "see whether the bucket's name and the endpoint are right",
    "InvalidAccessKeyId": "see whether the access key belongs to this endpoint",
    "SignatureDoesNotMatch": "see whether secret_key (AWS_SECRET_ACCESS_KEY) belongs to access_key",
    "AccessDenied": "the credentials may not do this: they need s3:ListBucket on the bucket and s3:GetObject on its objects",
    "ExpiredToken": "renew the session token",
    "RequestTimeTooSkewed": "set this machine's clock",
}


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, code: str, message: str, region: str) -> None:
        super().__init__(status, code, message, region)
        self.status = status
        self.code = code  # as S3 names it: NoSuchKey, AccessDenied …; empty where the server gave none
        self.message = message
        self.region = region  # where the bucket really is; empty: not said

    @classmethod
    def of(cls, status: int, body: str, region: str = "") -> Refusal:
        """Only code and message are taken: a body may repeat the request's credentials (G11)."""
        found = re.findall(r"<(Code|Message|Region)>([^<\n]*)", body)
        parts = {name: unescape(text) for name, text in reversed(found)}  # the first of each counts
        return cls(status, parts.get("Code", ""), parts.get("Message", ""), region or parts.get("Region", ""))

    def unreachable(self, access: S3Access, what: str) -> SourceUnreachable:
        """The whole bucket cannot be read."""
        told = f"{self.code}: {self.message}" if self.message else self.code
        hint = _HINTS.get(self.code, "see whether endpoint, region, bucket and credentials fit together")
        if self.region and self.region != access.region:
            hint = f"the bucket is in another region: write region: {self.region}"
        return SourceUnreachable(f"{access}: {what}: {told or f'HTTP status {self.status}'}", hint=hint)


def no_answer(access: S3Access, reason: str) -> SourceUnreachable:
    hint = "see whether the server runs at this endpoint and can be reached from here"
    if "certificate" in reason:
        hint = "let AWS_CA_BUNDLE name a file with the certificate of its issuer"
    return SourceUnreachable(f"{access}: {reason}", hint=hint)


@dataclass(frozen=True)
class Answer:
    """A success."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def moment(self) -> int:
        """When it was given by the server's clock, in microseconds since 1970."""
        try:
            return round(parsedate_to_datetime(self.headers["date"]).timestamp()) * 1_000_000
        except (KeyError, ValueError):  # HTTP wants the header of every server that has a clock
            return time.time_ns() // 1000


class S3Requests:
    """Asks one bucket; several threads may share it."""

    def __init__(self, access: S3Access) -> None:
        self._access = access

    def get(self, key: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        """An object, or the bucket itself for an empty key. Raises Refusal, and SourceUnreachable where nobody answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for pause in _PAUSES_SECONDS:
            try:
                return self._once(key, query or {}, headers or {})
            except (Refusal, SourceUnreachable) as error:
                final = isinstance(error, Refusal) and error.status not in _AGAIN
                if final or time.monotonic() > deadline:
                    raise
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - so that many tasks do not come back at once
        return self._once(key, query or {}, headers or {})

    def read(self, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
        """An object, or a part of it, if it still is the version."""
        headers = {"if-match": f'"{version.etag}"'}
        if part is not None:
            headers["range"] = f"bytes={part[0]}-{part[1] - 1}"
        return self.get(version.key, headers=headers).body

    def _once(self, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        request = Get(self._access.host, self._access.path(key), escaped_query(query), headers)
        keys = self._access.credentials.keys()
        sent = headers if keys is None else sign(request, keys, self._access.region, dt.datetime.now(dt.UTC))
        target = f"{request.path}?{request.query}" if request.query else request.path
        if self._pool.proxy and self._pool.scheme == "http":
            target = f"{self._access.endpoint}{target}"
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS)
        try:
            response = self._pool.urlopen(
                "GET",
                target,
                headers=sent,
                retries=False,
                redirect=False,
                assert_same_host=False,
                decode_content=False,
                timeout=timeout,
            )
        except urllib3.exceptions.HTTPError as error:
            raise no_answer(self._access, reason_of(error)) from None
        if response.status not in _OK:
            region = response.headers.get("x-amz-bucket-region", "")
            raise Refusal.of(response.status, response.data.decode(errors="replace"), region)
        return Answer(response.headers, response.data)

    @cached_property
    def _pool(self) -> urllib3.HTTPConnectionPool:
        # Not the manager's own `request`: it resolves `..` in paths, which are plain characters of a key.
        options: dict[str, Any] = {"maxsize": _CONNECTIONS}
        if self._access.ca_bundle:
            options["ca_certs"] = self._access.ca_bundle
        proxy = getproxies().get(self._access.endpoint.partition(":")[0])
        if proxy and not proxy_bypass(self._access.host):
            return urllib3.ProxyManager(proxy, **options).connection_from_url(self._access.endpoint)
        return urllib3.PoolManager(**options).connection_from_url(self._access.endpoint)


def reason_of(error: BaseException) -> str:
    """The innermost cause: `Connection refused` instead of how the client came to it."""
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    if isinstance(inner, BaseException):
        return reason_of(inner)
    return getattr(error, "strerror", None) or str(error)
