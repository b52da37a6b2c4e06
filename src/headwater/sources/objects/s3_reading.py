"""Objects of S3 read by obstore: in Rust, at half of the cost of a client in Python. For keys that are paths."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.s3_requests import CONNECT_SECONDS, PATIENCE_SECONDS, READ_SECONDS, Refusal, no_answer

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, RetryConfig

_STATUS = re.compile(r"status code: (\d+)")
_CAUSE = re.compile(r'(?:message|error): "([^"]*)"')
_LONGEST = timedelta(hours=12)  # for one whole object; a server that stalls is noticed by READ_SECONDS
_RETRY: RetryConfig = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=PATIENCE_SECONDS),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=3), "base": 2},
}


class S3Reader:
    """Reads one bucket; several threads may share it."""

    def __init__(self, access: S3Access) -> None:
        from obstore.store import S3Store  # noqa: PLC0415 - loaded when there is something to read

        self._access = access
        signing: dict[str, Any] = {"skip_signature": True}
        if access.credentials.keys() is not None:
            # Not as plain options: to these obstore would add what variables hold, such as another key's token.
            signing = {"credential_provider": self._keys}
        self._store = S3Store(
            access.bucket,
            endpoint=access.endpoint,
            region=access.region,
            virtual_hosted_style_request=not access.path_style,
            client_options=_client_options(access),
            retry_config=_RETRY,
            **signing,
        )

    def read(self, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
        """The object, or a part of it, if it still is the version. Raises Refusal, SourceUnreachable."""
        from obstore.exceptions import BaseError  # noqa: PLC0415

        options: GetOptions = {"if_match": f'"{version.etag}"'}
        if part is not None:
            options["range"] = part
        try:
            return self._store.get(version.key, options=options).bytes().to_bytes()
        except (BaseError, OSError) as error:
            raise self._told(str(error)) from None

    def _told(self, text: str) -> Exception:
        """Its errors are texts: the first line, the server's answer, and how it came to it."""
        status = _STATUS.search(text)
        if status:
            return Refusal.of(int(status[1]), text)
        causes = _CAUSE.findall(text)
        return no_answer(self._access, f"read: {causes[-1] if causes else text.splitlines()[0].rpartition(' - ')[2]}")

    def _keys(self) -> dict[str, Any]:
        keys = self._access.credentials.keys()
        assert keys is not None  # noqa: S101 - otherwise nothing is signed
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key.reveal(),
            "token": keys.session_token.reveal() if keys.session_token else None,
            "expires_at": keys.expires_at,
        }


def _client_options(access: S3Access) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": access.endpoint.startswith("http:"),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=READ_SECONDS),
        "timeout": _LONGEST,
    }
    if access.ca_bundle:
        options["root_certificate"] = Path(access.ca_bundle).read_bytes()
    return options
