"""Endpoint, region and credentials of an S3 bucket: from settings first, then AWS's variables and files; and AWS's signature version 4."""

from __future__ import annotations

import configparser
import datetime as dt
import hashlib
import hmac
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlsplit

from headwater.config.project import S3Settings
from headwater.model.errors import InputError, SourceUnreachable
from headwater.model.secret import Secret

if TYPE_CHECKING:
    from botocore.session import Session

_NO_BODY = hashlib.sha256(b"").hexdigest()
_PLAIN = "-_.~"  # not escaped, beside letters and digits


@dataclass(frozen=True)
class Keys:
    """Credentials that are valid now."""

    access_key: str = field(repr=False)  # not a secret, but not for display either
    secret_key: Secret
    session_token: Secret | None = None
    expires_at: dt.datetime | None = None


class Credentials(Protocol):
    """A source of keys; temporary ones change from call to call."""

    def keys(self) -> Keys | None:
        """Keys that are valid now; None: do not sign."""


@dataclass(frozen=True)
class StaticKeys:
    """Keys from settings or the environment; None: anonymous."""

    fixed: Keys | None

    def keys(self) -> Keys | None:
        return self.fixed


def escape_path(key: str) -> str:
    """Escape everything but slashes once: S3 signs the exact key, with `//` and `..` in it."""
    return quote(key, safe=_PLAIN + "/")


def escape_query(query: Mapping[str, str]) -> str:
    """In the order of the signature."""
    pairs = [f"{quote(name, safe=_PLAIN)}={quote(value, safe=_PLAIN)}" for name, value in query.items()]
    return "&".join(sorted(pairs, key=lambda pair: pair.split("=")))


@dataclass(frozen=True)
class GetRequest:
    """A request for an object, or for a listing."""

    host: str
    path: str  # escaped
    query: str  # escaped, in order
    headers: Mapping[str, str]  # names in lower case


def sign(request: GetRequest, keys: Keys, region: str, now: dt.datetime) -> dict[str, str]:
    """All headers to send, with those of the request."""
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": request.host, "x-amz-date": timestamp, "x-amz-content-sha256": _NO_BODY, **request.headers}
    if keys.session_token is not None:
        headers["x-amz-security-token"] = keys.session_token.reveal()
    names = ";".join(sorted(headers))
    lines = [f"{name}:{' '.join(headers[name].split())}" for name in sorted(headers)]
    canonical_request = "\n".join(["GET", request.path, request.query, *lines, "", names, _NO_BODY])
    scope = f"{timestamp[:8]}/{region}/s3/aws4_request"
    string_to_sign = "\n".join(
        ["AWS4-HMAC-SHA256", timestamp, scope, hashlib.sha256(canonical_request.encode()).hexdigest()]
    )
    key = f"AWS4{keys.secret_key.reveal()}".encode()
    for component in (*scope.split("/"), string_to_sign):
        key = hmac.digest(key, component.encode(), "sha256")
    credential = f"Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}


_DEFAULT_REGION = "us-east-1"  # as in AWS's tools


@dataclass(frozen=True)
class S3Access:
    """How to reach one bucket. Picklable: tasks use what the driver resolved."""

    bucket: str
    endpoint: str  # its host includes the bucket, unless `path_style`
    region: str
    path_style: bool
    credentials: Credentials
    ca_bundle: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint).netloc

    def path(self, key: str) -> str:
        """The escaped path of an object, or of the bucket for an empty key."""
        before = f"/{self.bucket}" if self.path_style else ""
        return f"{urlsplit(self.endpoint).path.rstrip('/')}{before}/{escape_path(key)}"

    def __str__(self) -> str:
        return f"s3://{self.bucket} at {self.endpoint}"


def find_access(bucket: str, settings: S3Settings, environment: Mapping[str, str] = os.environ) -> S3Access:
    """As AWS's tools do: settings win over variables, variables over files."""
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
        _base_url(endpoint or f"https://s3.{region}.{_domain(region)}", "" if path_style else bucket),
        region,
        path_style,
        _credentials(settings, environment, profile, region),
        _ca_bundle(environment.get("AWS_CA_BUNDLE") or profile.ca_bundle),
    )


def _configured_endpoint(environment: Mapping[str, str], profile: AwsProfile) -> str | None:
    if environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    return environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or profile.endpoint


def _base_url(endpoint: str, bucket_in_host: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise InputError(
            "the endpoint of S3 is not a server's address", hint="use for example endpoint: http://localhost:9000"
        )
    host = f"{bucket_in_host}.{parts.netloc}" if bucket_in_host else parts.netloc
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def _ca_bundle(bundle: str | None) -> str | None:
    if bundle and not Path(bundle).is_file():
        raise InputError(
            f"{bundle}, the file of certificates for S3, does not exist", hint="check AWS_CA_BUNDLE and ca_bundle"
        )
    return bundle


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _credentials(settings: S3Settings, environment: Mapping[str, str], profile: AwsProfile, region: str) -> Credentials:
    if settings.anonymous:
        return StaticKeys(None)
    base_keys = (
        _from_settings(settings) or (None if settings.profile else _from_environment(environment)) or profile.keys
    )
    if base_keys is not None and settings.role is None:
        return StaticKeys(base_keys)
    return BotocoreKeys(base_keys, settings.profile, settings.role, settings.endpoint, region)


def _from_settings(settings: S3Settings) -> Keys | None:
    if (settings.access_key is None) != (settings.secret_key is None):
        raise InputError("s3: access_key and secret_key belong together", hint="set both or neither")
    if settings.access_key is None or settings.secret_key is None:
        return None
    return Keys(settings.access_key.reveal(), settings.secret_key, settings.session_token)


def _from_environment(environment: Mapping[str, str]) -> Keys | None:
    access, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    token = environment.get("AWS_SESSION_TOKEN") or environment.get("AWS_SECURITY_TOKEN")
    if not access or not secret:
        return None
    return Keys(access, Secret(secret), Secret(token) if token else None)


@dataclass(frozen=True)
class AwsProfile:
    """The profile in AWS's files; empty without files."""

    region: str | None = None
    endpoint: str | None = None
    ca_bundle: str | None = None
    keys: Keys | None = None  # None too for keys that botocore fetches: roles, single sign-on, processes


def read_profile(configured: str | None, environment: Mapping[str, str]) -> AwsProfile:
    """The profile of the settings, else of the variables, else `default`. Only the default may be missing."""
    requested = configured or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    name = requested or "default"
    config = _read_config(environment.get("AWS_CONFIG_FILE", "~/.aws/config"))
    credentials_file = _read_config(environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    section = next((title for title in (f"profile {name}", name) if config.has_section(title)), None)
    if requested and section is None and not credentials_file.has_section(name):
        raise InputError(
            f"AWS's configuration files have no profile {name!r}",
            hint="check ~/.aws/config and ~/.aws/credentials, or set access_key and secret_key",
        )
    settings = dict(config[section]) if section else {}
    keys = dict(credentials_file[name]) if credentials_file.has_section(name) else {}
    return AwsProfile(
        settings.get("region") or keys.get("region"),
        _endpoint(settings, config),
        settings.get("ca_bundle"),
        _keys(settings | keys) if "role_arn" not in settings | keys else None,
    )


def _read_config(path: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, default_section="", allow_no_value=True)
    file = Path(path).expanduser()
    try:
        parser.read_string(file.read_text(), str(file))
    except (FileNotFoundError, NotADirectoryError):
        return parser
    except (OSError, configparser.Error) as error:
        # The parser's message quotes the line, which may hold a key (G11).
        raise InputError(f"{file} is not a valid AWS configuration file ({type(error).__name__})") from None
    return parser


def _keys(section: Mapping[str, str | None]) -> Keys | None:
    access, secret = section.get("aws_access_key_id"), section.get("aws_secret_access_key")
    token = section.get("aws_session_token") or section.get("aws_security_token")
    return Keys(access, Secret(secret), Secret(token) if token else None) if access and secret else None


def _endpoint(settings: Mapping[str, str | None], config: configparser.RawConfigParser) -> str | None:
    """The endpoint of S3 in the profile's `services`, else that of the profile."""
    if (settings.get("ignore_configured_endpoint_urls") or "").lower() == "true":
        return None
    services = f"services {settings.get('services')}"
    s3_section = config.get(services, "s3", fallback=None) or ""
    match = re.search(r"^\s*endpoint_url\s*=\s*(\S+)", s3_section, re.MULTILINE)
    return match[1] if match else settings.get("endpoint_url")


_REFRESH_AFTER = dt.timedelta(minutes=5)  # botocore renews them before they expire
_SESSION_NAME = "headwater"


@dataclass(frozen=True)
class BotocoreKeys:
    """Keys that botocore finds and renews, as in AWS's tools."""

    base_keys: Keys | None = None  # to assume the role with; None: botocore searches
    profile: str | None = None
    role: str | None = None
    endpoint: str | None = None
    region: str | None = None

    def keys(self) -> Keys:
        provider = self._provider
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            frozen = provider.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise SourceUnreachable(
                f"credentials for S3{f' by the role {self.role}' if self.role else ''}: {error}",
                hint="check that the credentials may assume the role and have not expired",
            ) from None
        token = Secret(frozen.token) if frozen.token else None
        return Keys(frozen.access_key, Secret(frozen.secret_key), token, dt.datetime.now(dt.UTC) + _REFRESH_AFTER)

    @cached_property
    def _provider(self) -> Any:
        """Botocore's credentials."""
        try:
            from botocore import credentials
            from botocore.session import Session
        except ImportError:
            raise self._not_installed() from None
        logging.getLogger("botocore.credentials").setLevel(
            logging.ERROR
        )  # `keys` raises what botocore would log with a traceback
        session = Session(profile=self.profile)
        session.set_config_variable("region", self.region)
        base_keys = self.base_keys
        source = session.get_credentials() if base_keys is None else credentials.Credentials(*_plain_keys(base_keys))
        if source is None:
            raise InputError(
                "no credentials for S3 in settings, AWS's variables, AWS's files, or on this machine",
                hint="set access_key and secret_key (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), or anonymous: true for a public bucket",
            )
        if self.role is None:
            return source
        fetcher = credentials.AssumeRoleCredentialFetcher(
            self._sts_client(session), source, self.role, {"RoleSessionName": _SESSION_NAME}
        )
        return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def _sts_client(self, session: Session) -> Callable[..., Any]:
        """For assuming roles: at Amazon, or at the store itself, as with MinIO and Ceph."""
        host = urlsplit(self.endpoint or "").hostname or ""
        not_amazon = bool(host) and not host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
        endpoint = self.endpoint if not_amazon and "AWS_ENDPOINT_URL_STS" not in os.environ else None
        return partial(session.create_client, endpoint_url=endpoint)

    def _not_installed(self) -> InputError:
        method = "a role" if self.role else f"the profile {self.profile!r}" if self.profile else "this machine's role"
        return InputError(
            f"credentials for S3 by {method} are fetched with botocore, which is not installed",
            hint="pip install 'headwater[aws]'; or set access_key and secret_key (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY); or anonymous: true for a public bucket",
        )

    def __reduce__(self) -> tuple[object, ...]:
        # A task gets the keys that are valid now: profiles and roles may exist on this machine only.
        return (StaticKeys, (self.keys(),))


def _plain_keys(keys: Keys) -> tuple[str, str, str | None]:
    return keys.access_key, keys.secret_key.reveal(), keys.session_token.reveal() if keys.session_token else None
