"""Objects of S3 read by obstore: in Rust, at half of the cost of a client in Python. For keys that are paths."""

from __future__ import annotations

from typing import Any

from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.obstore_client import RETRY, cause_of, client_options, get, status_of
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.s3_requests import Refusal, no_answer


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
            client_options=client_options(allow_http=access.endpoint.startswith("http:"), ca_bundle=access.ca_bundle),
            retry_config=RETRY,
            **signing,
        )

    def read(self, version: ObjectVersion, part: tuple[int, int] | None) -> bytes:
        """The object, or a part of it, if it still is the version. Raises Refusal, SourceUnreachable."""
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            return get(self._store, version, part)
        except (BaseError, OSError) as error:
            raise self._told(str(error)) from None

    def _told(self, text: str) -> Exception:
        status = status_of(text)
        return Refusal.of(status, text) if status else no_answer(self._access, f"read: {cause_of(text)}")

    def _keys(self) -> dict[str, Any]:
        keys = self._access.credentials.keys()
        assert keys is not None  # noqa: S101 - otherwise nothing is signed
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key.reveal(),
            "token": keys.session_token.reveal() if keys.session_token else None,
            "expires_at": keys.expires_at,
        }
