"""What AWS's configuration files say of a profile, as far as it needs nobody else to be asked."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.model.errors import InputError
from headwater.model.secret import Secret
from headwater.sources.objects.s3_signing import Keys


@dataclass(frozen=True)
class AwsProfile:
    """Empty where there are no files."""

    region: str | None = None
    endpoint: str | None = None
    ca_bundle: str | None = None
    keys: Keys | None = None  # None too where they must be fetched: by a role, single sign-on, a program


def read_profile(written: str | None, environment: Mapping[str, str]) -> AwsProfile:
    """`written` in settings, else by variable, else `default`. Only a profile that was asked for must be there."""
    asked = written or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    name = asked or "default"
    config = _parsed(environment.get("AWS_CONFIG_FILE", "~/.aws/config"))
    lent = _parsed(environment.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))
    in_config = next((part for part in (f"profile {name}", name) if config.has_section(part)), None)
    if asked and in_config is None and not lent.has_section(name):
        raise InputError(
            f"AWS's configuration files have no profile {name!r}",
            hint="see ~/.aws/config and ~/.aws/credentials, or write access_key and secret_key",
        )
    settings = dict(config[in_config]) if in_config else {}
    keys = dict(lent[name]) if lent.has_section(name) else {}
    return AwsProfile(
        settings.get("region") or keys.get("region"),
        _endpoint(settings, config),
        settings.get("ca_bundle"),
        _keys(settings | keys) if "role_arn" not in settings | keys else None,
    )


def _parsed(path: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, default_section="", allow_no_value=True)
    file = Path(path).expanduser()
    try:
        parser.read_string(file.read_text(), str(file))
    except (FileNotFoundError, NotADirectoryError):
        return parser
    except (OSError, configparser.Error) as error:
        # The parser's own message quotes the line, which may hold a key (G11).
        raise InputError(f"{file} cannot be read as a configuration file of AWS ({type(error).__name__})") from None
    return parser


def _keys(found: Mapping[str, str | None]) -> Keys | None:
    access, secret = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
    token = found.get("aws_session_token") or found.get("aws_security_token")
    return Keys(access, Secret(secret), Secret(token) if token else None) if access and secret else None


def _endpoint(settings: Mapping[str, str | None], config: configparser.RawConfigParser) -> str | None:
    """That of S3 in the profile's `services`, else the profile's own."""
    if (settings.get("ignore_configured_endpoint_urls") or "").lower() == "true":
        return None
    services = f"services {settings.get('services')}"
    of_s3 = config.get(services, "s3", fallback=None) or ""
    found = re.search(r"^\s*endpoint_url\s*=\s*(\S+)", of_s3, re.MULTILINE)
    return found[1] if found else settings.get("endpoint_url")
