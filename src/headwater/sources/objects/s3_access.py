"""Where an S3 bucket is and with which credentials it is asked: settings first, then AWS's own variables and files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headwater.config.s3 import S3Settings
from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.sources.objects.aws_profile import AwsProfile, read_profile
from headwater.sources.objects.s3_signing import Credentials, FixedKeys, Keys, escaped_path

_DEFAULT_REGION = "us-east-1"  # where AWS's tools ask for buckets whose region nobody wrote


@dataclass(frozen=True)
class S3Access:
    """One bucket. Picklable: what the driver found goes along with tasks."""

    bucket: str
    endpoint: str  # with the bucket in its host's name, unless `path_style`
    region: str
    path_style: bool
    credentials: Credentials
    ca_bundle: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint).netloc

    def path(self, key: str) -> str:
        """An object's path in requests, escaped; the bucket's own for an empty key."""
        before = f"/{self.bucket}" if self.path_style else ""
        return f"{urlsplit(self.endpoint).path.rstrip('/')}{before}/{escaped_path(key)}"

    def __str__(self) -> str:
        return f"s3://{self.bucket} at {self.endpoint}"


def find_access(bucket: str, settings: S3Settings, environment: Mapping[str, str] = os.environ) -> S3Access:
    """As AWS's tools find it: what is written in settings wins over variables, and these over files."""
    profile = read_profile(settings.profile, environment)
    endpoint = settings.endpoint or _configured_endpoint(environment, profile)
    region = settings.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or profile.region
    region = region or _DEFAULT_REGION
    path_style = settings.path_style
    if path_style is None:
        # A certificate for *.s3.amazonaws.com covers no bucket with dots in its name.
        path_style = endpoint is not None or "." in bucket
    return S3Access(
        bucket,
        _base(endpoint or f"https://s3.{region}.{_domain(region)}", "" if path_style else bucket),
        region,
        path_style,
        _credentials(settings, environment, profile, region),
        _existing(environment.get("AWS_CA_BUNDLE") or profile.ca_bundle),
    )


def _configured_endpoint(environment: Mapping[str, str], profile: AwsProfile) -> str | None:
    if environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or profile.endpoint


def _base(endpoint: str, in_host: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InputError(
            "the endpoint of S3 is no address of a server", hint="write for example endpoint: http://localhost:9000"
        )
    host = f"{in_host}.{parts.netloc}" if in_host else parts.netloc
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def _existing(bundle: str | None) -> str | None:
    if bundle and not Path(bundle).is_file():
        raise InputError(
            f"{bundle}, which is to hold certificates for S3, is no file", hint="see AWS_CA_BUNDLE and ca_bundle"
        )
    return bundle


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _credentials(settings: S3Settings, environment: Mapping[str, str], profile: AwsProfile, region: str) -> Credentials:
    if settings.anonymous:
        return FixedKeys(None)
    own = _written(settings) or (None if settings.profile else _variables(environment)) or profile.keys
    if own is not None and settings.role is None:
        return FixedKeys(own)
    from headwater.sources.objects.aws_lent import LentKeys  # noqa: PLC0415 - most ask for no such thing

    return LentKeys(own, settings.profile, settings.role, settings.endpoint, region)


def _written(settings: S3Settings) -> Keys | None:
    if (settings.access_key is None) != (settings.secret_key is None):
        raise InputError("s3: access_key and secret_key belong together", hint="write both, or none of them")
    if settings.access_key is None or settings.secret_key is None:
        return None
    return Keys(settings.access_key.reveal(), settings.secret_key, settings.session_token)


def _variables(environment: Mapping[str, str]) -> Keys | None:
    access, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    token = environment.get("AWS_SESSION_TOKEN") or environment.get("AWS_SECURITY_TOKEN")
    if not access or not secret:
        return None
    return Keys(access, Secret(secret), Secret(token) if token else None)
