"""Where S3 is and with which keys: settings, AWS's variables, AWS's files; what Amazon's own library finds is the oracle."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError, SourceUnreachable
from headwater.model.secret import Secret
from headwater.storage.open import open_container
from headwater.storage.s3.bucket import Bucket
from headwater.storage.s3.credentials import BotocoreKeys, Keys, S3Access, StaticKeys, find_access
from tests.storage.containers import listed, opened_bucket
from tests.support.s3_objects import put
from tests.support.stack import S3ForTests

_ROLE = "arn:aws:iam::123456789012:role/reader"
_CONFIG = """
[default]
region = eu-west-1

[profile plain]
region = eu-central-1
endpoint_url = http://of-the-profile:9000
aws_access_key_id = plain-key
aws_secret_access_key = plain-secret

[profile served]
services = ours
endpoint_url = http://of-the-profile:9000

[services ours]
s3 =
  endpoint_url = http://of-s3:9000
  max_attempts = 3

[profile assuming]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = plain
"""
_CREDENTIALS = """
[default]
aws_access_key_id = default-key
aws_secret_access_key = default-secret

[served]
aws_access_key_id = served-key
aws_secret_access_key = served-secret
aws_session_token = served-token
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """AWS's variables, with files of the test's own."""
    (tmp_path / "config").write_text(_CONFIG)
    (tmp_path / "credentials").write_text(_CREDENTIALS)
    return {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _values_of(access: S3Access) -> tuple[str, str, tuple[str, str, str | None]]:
    keys = access.credentials.keys()
    assert keys is not None
    token = keys.session_token.reveal() if keys.session_token else None
    return access.endpoint, access.region, (keys.access_key, keys.secret_key.reveal(), token)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"AWS_REGION": "eu-north-1"},
        {"AWS_DEFAULT_REGION": "eu-north-1"},
        {"AWS_PROFILE": "plain"},
        {"AWS_DEFAULT_PROFILE": "plain"},
        {"AWS_PROFILE": "served"},
        {"AWS_PROFILE": "plain", "AWS_ENDPOINT_URL": "http://of-the-variable:9000"},
        {"AWS_PROFILE": "served", "AWS_ENDPOINT_URL": "http://of-the-variable:9000"},
        {"AWS_ENDPOINT_URL": "http://all:9000", "AWS_ENDPOINT_URL_S3": "http://s3:9000"},
        {"AWS_PROFILE": "served", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"},
        {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t", "AWS_PROFILE": "plain"},
    ],
)
def test_variables_and_files_mean_what_they_mean_to_amazons_library(
    files: dict[str, str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (files | variables).items():
        monkeypatch.setenv(name, value)
    session = Session()
    region = session.get_config_variable("region")
    if region is None and "AWS_REGION" in variables:
        region = variables["AWS_REGION"]  # Amazon's newer tools read it; botocore itself only the older name
    client = session.create_client("s3", region_name=region or "us-east-1")
    credentials = session.get_credentials()
    endpoint, in_region, keys = _values_of(find_access("b", S3Settings(), files | variables))
    theirs = str(client.meta.endpoint_url)
    assert endpoint == (theirs if "amazonaws" not in theirs else f"https://b.s3.{in_region}.amazonaws.com")
    assert keys == (credentials.access_key, credentials.secret_key, credentials.token)
    assert variables.get("AWS_REGION", client.meta.region_name) == in_region


def test_what_is_written_wins_over_variables_and_these_over_files(files: dict[str, str]) -> None:
    variables = files | {
        "AWS_ACCESS_KEY_ID": "variable", "AWS_SECRET_ACCESS_KEY": "v", "AWS_SESSION_TOKEN": "of another key",
        "AWS_REGION": "eu-north-1", "AWS_ENDPOINT_URL": "http://variable:9000",
    }  # fmt: skip
    written = S3Settings(endpoint="http://written:9000", region="eu-west-3", access_key="written", secret_key="w")  # noqa: S106
    assert _values_of(find_access("b", written, variables)) == (
        "http://written:9000",
        "eu-west-3",
        ("written", "w", None),
    )
    by_profile = find_access("b", S3Settings(profile="served"), variables)
    assert _values_of(by_profile)[2] == ("served-key", "served-secret", "served-token")
    assert find_access("b", S3Settings(anonymous=True), variables).credentials.keys() is None


@pytest.mark.parametrize(
    ("settings", "bucket", "endpoint", "path"),
    [
        ({}, "b", "https://b.s3.us-east-1.amazonaws.com", "/a%20b"),
        ({"region": "cn-north-1"}, "b", "https://b.s3.cn-north-1.amazonaws.com.cn", "/a%20b"),
        ({"path_style": True}, "b", "https://s3.us-east-1.amazonaws.com", "/b/a%20b"),
        ({}, "with.dots", "https://s3.us-east-1.amazonaws.com", "/with.dots/a%20b"),
        ({"endpoint": "http://localhost:9000/"}, "b", "http://localhost:9000", "/b/a%20b"),
        ({"endpoint": "http://host/s3/"}, "b", "http://host/s3", "/s3/b/a%20b"),
        ({"endpoint": "https://store.example", "path_style": False}, "b", "https://b.store.example", "/a%20b"),
    ],
)
def test_where_a_bucket_is(settings: dict[str, Any], bucket: str, endpoint: str, path: str) -> None:
    access = find_access(bucket, S3Settings(anonymous=True, **settings), {"AWS_CONFIG_FILE": "/nothing"})
    assert (access.endpoint, access.path("a b")) == (endpoint, path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"access_key": "k"}, "belong together"),
        ({"secret_key": "s"}, "belong together"),
        ({"profile": "nobody"}, "no profile 'nobody'"),
        ({"endpoint": "localhost:9000", "anonymous": True}, "not a server's address"),
        ({"endpoint": "ftp://localhost", "anonymous": True}, "not a server's address"),
        ({"endpoint": "http://user:pass@host", "anonymous": True}, "not a server's address"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str, files: dict[str, str]) -> None:
    with pytest.raises(InputError, match=message) as refused:
        find_access("b", S3Settings(**settings), files)
    assert "pass" not in str(refused.value)


def test_a_file_that_is_none_of_aws_is_told_without_what_is_in_it(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("aws_secret_access_key = not-to-be-seen\n")
    with pytest.raises(InputError, match="not a valid AWS configuration file") as refused:
        find_access("b", S3Settings(), files)
    assert "not-to-be-seen" not in str(refused.value)


def test_certificates_that_are_not_there_are_told(files: dict[str, str]) -> None:
    with pytest.raises(InputError, match="/nothing, the file of certificates"):
        find_access("b", S3Settings(anonymous=True), files | {"AWS_CA_BUNDLE": "/nothing"})


def test_no_credentials_at_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nothing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    access = find_access("b", S3Settings())
    with pytest.raises(InputError, match="no credentials for S3") as caught:
        access.credentials.keys()
    assert "anonymous: true" in caught.value.hint


@pytest.mark.servers
def test_a_bucket_is_found_by_variables_alone(s3: S3ForTests, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(s3, bucket, {"a": b"content"})
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    container = open_container(ObjectsSourceSettings(url=f"s3://{bucket}"), Path("/"), S3Settings())
    assert container.fetch(listed(container)["a"]) == b"content"


@pytest.mark.servers
def test_anothers_token_does_not_get_into_requests(
    s3: S3ForTests, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, bucket, {"a": b"content"})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "another")
    container = opened_bucket(s3, bucket)
    assert container.fetch(listed(container)["a"]) == b"content"


@pytest.mark.servers
@pytest.mark.parametrize("way", ["role", "profile"])
def test_keys_are_lent_by_a_role(
    moto: S3ForTests, moto_bucket: str, files: dict[str, str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    put(moto, moto_bucket, {"a": b"content", "a//b": b"odd"})
    for name, value in (files | moto.environment).items():
        monkeypatch.setenv(name, value)
    settings = {"role": _ROLE, "endpoint": moto.endpoint} if way == "role" else {"profile": "assuming"}
    container = open_container(ObjectsSourceSettings(url=f"s3://{moto_bucket}"), Path("/"), S3Settings(**settings))
    assert isinstance(container, Bucket)
    temporary = container.access.credentials
    assert isinstance(temporary, BotocoreKeys)
    keys = temporary.keys()
    assert keys.access_key.startswith("ASIA")  # Amazon's mark of keys that are lent
    assert keys.session_token is not None
    assert keys.session_token.reveal() not in repr(container)
    assert container.fetch(listed(container)["a"]) == b"content"

    arrived = pickle.loads(pickle.dumps(container))  # noqa: S301 - our own
    assert isinstance(arrived.access.credentials, StaticKeys)
    assert arrived.access.credentials.keys().access_key == keys.access_key
    assert [arrived.fetch(version) for version in listed(arrived).values()] == [b"content", b"odd"]


def test_a_role_that_nobody_lends_is_told() -> None:
    nobody = BotocoreKeys(Keys("key", Secret("not-to-be-seen")), role=_ROLE, endpoint="http://127.0.0.1:9", region="r")
    with pytest.raises(SourceUnreachable, match=f"by the role {_ROLE}") as caught:
        nobody.keys()
    assert "not-to-be-seen" not in str(caught.value) + repr(nobody)


@pytest.mark.parametrize("settings", ["role='arn:aws:iam::1:role/r'", "profile='assuming'", ""])
def test_what_needs_an_extra_says_so(files: dict[str, str], settings: str) -> None:
    asking = (
        "import sys; sys.modules['botocore'] = None\n"  # as where it is not installed
        "from headwater.config.project import S3Settings\n"
        "from headwater.storage.s3.credentials import find_access\n"
        f"find_access('b', S3Settings({settings})).credentials.keys()"
    )
    alone = files | {"PATH": os.environ["PATH"], "AWS_SHARED_CREDENTIALS_FILE": "/nothing"}
    process = subprocess.run([sys.executable, "-c", asking], env=alone, capture_output=True, text=True, check=False)
    assert "InputError" in process.stderr
    assert "botocore, which is not installed" in process.stderr
    assert "pip install 'headwater[aws]'" in process.stderr
