"""Objects of S3 read by obstore: in Rust, at half of the cost of a client in Python. For keys that are paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.sources.objects.container import ObjectVersion
from headwater.sources.objects.obstore_client import RETRY, cause_of, client_options, get, status_of
from headwater.sources.objects.s3_access import S3Access
from headwater.sources.objects.s3_requests import Refusal, no_answer

if TYPE_CHECKING:
    from obstore.store import S3Store


class S3Reader:
    """Reads one bucket; several threads may share it."""

    def __init__(self, access: S3Access) -> None:
        self._access, self._store = access, s3_store(access)

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


def s3_store(access: S3Access) -> S3Store:
    """Obstore's client of one bucket; several threads may share it."""
    from obstore.store import S3Store  # noqa: PLC0415 - loaded when there is something to read

    def keys() -> dict[str, Any]:
        valid = access.credentials.keys()
        assert valid is not None  # noqa: S101 - otherwise nothing is signed
        return {
            "access_key_id": valid.access_key,
            "secret_access_key": valid.secret_key.reveal(),
            "token": valid.session_token.reveal() if valid.session_token else None,
            "expires_at": valid.expires_at,
        }

    signing: dict[str, Any] = {"skip_signature": True}
    if access.credentials.keys() is not None:
        # Not as plain options: to these obstore would add what variables hold, such as another key's token.
        signing = {"credential_provider": keys}
    return S3Store(
        access.bucket,
        endpoint=access.endpoint,
        region=access.region,
        virtual_hosted_style_request=not access.path_style,
        client_options=client_options(allow_http=access.endpoint.startswith("http:"), ca_bundle=access.ca_bundle),
        retry_config=RETRY,
        **signing,
    )
