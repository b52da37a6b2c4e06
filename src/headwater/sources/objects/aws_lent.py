"""Credentials that must be fetched: a role to assume, single sign-on, a program, the machine's own. By botocore."""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.model.errors import InputError, SourceUnreachable
from headwater.model.secret import Secret
from headwater.sources.objects.s3_signing import FixedKeys, Keys

if TYPE_CHECKING:
    from botocore.session import Session

_ASK_AGAIN = dt.timedelta(minutes=5)  # botocore itself knows how long they last, and renews them in time
_SESSION_NAME = "headwater"


@dataclass(frozen=True)
class LentKeys:
    """Found and renewed by botocore, as in AWS's own tools."""

    own: Keys | None = None  # to assume the role with; None: what botocore finds
    profile: str | None = None
    role: str | None = None
    endpoint: str | None = None
    region: str | None = None

    def keys(self) -> Keys:
        lender = self._lender
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - it is installed, as we see

        try:
            found = lender.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise SourceUnreachable(
                f"credentials for S3{f' by the role {self.role}' if self.role else ''}: {error}",
                hint="see whether the credentials that are found may assume the role, and have not expired",
            ) from None
        token = Secret(found.token) if found.token else None
        return Keys(found.access_key, Secret(found.secret_key), token, dt.datetime.now(dt.UTC) + _ASK_AGAIN)

    @cached_property
    def _lender(self) -> Any:
        """Botocore's own kind of credentials."""
        try:
            from botocore import credentials  # noqa: PLC0415 - an extra
            from botocore.session import Session  # noqa: PLC0415
        except ImportError:
            raise self._not_installed() from None
        logging.getLogger("botocore.credentials").setLevel(
            logging.ERROR
        )  # what it warns of, `keys` tells without a trace
        session = Session(profile=self.profile)
        session.set_config_variable("region", self.region)
        own = self.own
        source = session.get_credentials() if own is None else credentials.Credentials(*_revealed(own))
        if source is None:
            raise InputError(
                "no credentials for S3 are found in settings, AWS's variables, AWS's files, or on this machine",
                hint="write access_key and secret_key, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write anonymous: true for a public bucket",
            )
        if self.role is None:
            return source
        fetcher = credentials.AssumeRoleCredentialFetcher(
            self._clients(session), source, self.role, {"RoleSessionName": _SESSION_NAME}
        )
        return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _clients(self, session: Session) -> Callable[..., Any]:
        """Where roles are assumed: at Amazon, or at the store itself, as MinIO and Ceph can."""
        host = urlsplit(self.endpoint or "").hostname or ""
        own = bool(host) and not host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        endpoint = self.endpoint if own and "AWS_ENDPOINT_URL_STS" not in os.environ else None
        return partial(session.create_client, endpoint_url=endpoint)

    def _not_installed(self) -> InputError:
        needs = (
            "a role" if self.role else f"the profile {self.profile!r}" if self.profile else "what is not written down"
        )
        return InputError(
            f"credentials for S3 by {needs} are fetched with botocore, which is not installed",
            hint="pip install 'headwater[aws]'; or write access_key and secret_key (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY); or anonymous: true for a public bucket",
        )

    def __reduce__(self) -> tuple[object, ...]:
        # A task gets what is valid now: profiles and the right to assume a role may be this machine's alone.
        return (FixedKeys, (self.keys(),))


def _revealed(keys: Keys) -> tuple[str, str, str | None]:
    return keys.access_key, keys.secret_key.reveal(), keys.session_token.reveal() if keys.session_token else None
