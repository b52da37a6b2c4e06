"""Google's protocol for listing and reading is S3's of old, so moto can stand in for a public bucket of Google's."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.errors import InputError, SourceUnreachable
from headwater.storage.container import LISTING_COLUMNS, ObjectChanged, ObjectGone, ObjectVersion
from headwater.storage.gcs_azure import CloudBucket
from headwater.storage.open import open_container
from tests.storage.containers import by_bytes, keys, listed
from tests.support.s3_objects import amazons_client
from tests.support.stack import S3ForTests

pytestmark = pytest.mark.servers

_NAMES = [
    "a b",
    "a-b",
    "a/x",
    "100%41",
    "1+1#?",
    "in/a.json",
    "in/deep/b.json",
    "in/_tmp/c.json",
    "ünï/日本",
    "\U0001f600",
]


def _opened(s3: S3ForTests, url: str, **settings: Any) -> CloudBucket:
    options = {"base_url": s3.endpoint, "skip_signature": "true"}
    container = open_container(
        ObjectsSourceSettings(url=url, storage_options=options, **settings), Path("/"), S3Settings()
    )
    assert isinstance(container, CloudBucket)
    return container


def _put(s3: S3ForTests, bucket: str, contents: dict[str, bytes]) -> None:
    for key, content in contents.items():
        amazons_client(s3).put_object(Bucket=bucket, Key=key, Body=content, ACL="public-read")


@pytest.fixture
def public_bucket(moto: S3ForTests, moto_bucket: str) -> str:
    amazons_client(moto).put_bucket_acl(Bucket=moto_bucket, ACL="public-read")
    return moto_bucket


def test_a_bucket_of_google_is_listed_and_read(moto: S3ForTests, public_bucket: str) -> None:
    _put(moto, public_bucket, {name: name.encode() for name in _NAMES} | {"empty": b""})
    container = dataclasses.replace(_opened(moto, f"gs://{public_bucket}", ignore=[]), page_size=4)
    assert {field.name: str(field.type) for field in next(container.listing()).schema} == LISTING_COLUMNS
    objects = listed(container)
    assert list(objects) == by_bytes([*_NAMES, "empty"])
    for key, version in objects.items():
        assert container.fetch(version) == (b"" if key == "empty" else key.encode())
        assert container.fetch_range(version, 1, 3) == container.fetch(version)[1:3]
        assert container.stat(key) == version
    assert keys(container, "in/a.json") == [key for key in objects if key > "in/a.json"]
    assert pickle.loads(pickle.dumps(container)) == container  # noqa: S301 - our own
    assert container.url("a b") == f"gs://{public_bucket}/a b"


def test_patterns_apply(moto: S3ForTests, public_bucket: str) -> None:
    _put(moto, public_bucket, dict.fromkeys(_NAMES, b"x"))
    assert keys(_opened(moto, f"gs://{public_bucket}/in")) == ["in/a.json", "in/deep/b.json"]
    assert keys(_opened(moto, f"gs://{public_bucket}/in", recursive=False)) == ["in/a.json"]
    assert keys(_opened(moto, f"gs://{public_bucket}", pattern="in/d*/*.json")) == ["in/deep/b.json"]
    young = _opened(moto, f"gs://{public_bucket}", min_age="1h")
    assert (keys(young), young.stat("a b")) == ([], None)


def test_versions_are_told_apart(moto: S3ForTests, public_bucket: str) -> None:
    _put(moto, public_bucket, {"a": b"old"})
    container = _opened(moto, f"gs://{public_bucket}")
    before = listed(container)["a"]
    _put(moto, public_bucket, {"a": b"new"})
    with pytest.raises(ObjectChanged):
        container.fetch(before)
    amazons_client(moto).delete_object(Bucket=public_bucket, Key="a")
    with pytest.raises(ObjectGone):
        container.fetch(before)
    assert container.stat("a") is None


def test_a_key_that_is_no_path_is_named(moto: S3ForTests, public_bucket: str) -> None:
    _put(moto, public_bucket, {"a//b": b"x"})
    with pytest.raises(SourceUnreachable, match="a//b") as caught:
        keys(_opened(moto, f"gs://{public_bucket}"))
    assert "rename the object" in caught.value.hint


def test_what_is_wrong_is_told(moto: S3ForTests) -> None:
    with pytest.raises(SourceUnreachable, match="gs://no-such-bucket/: list objects: NoSuchBucket"):
        keys(_opened(moto, "gs://no-such-bucket"))
    nobody = CloudBucket(
        "gs", "b", _opened(moto, "gs://b").selection, {"base_url": "http://127.0.0.1:9", "skip_signature": "true"}
    )
    with pytest.raises(SourceUnreachable, match="gs://b/: list objects: Connection refused"):
        keys(nobody)
    with pytest.raises(SourceUnreachable, match="Connection refused"):
        nobody.fetch(ObjectVersion("a", "e", 1, 0))


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_options_that_are_none_are_refused(scheme: str) -> None:
    source = ObjectsSourceSettings(url=f"{scheme}://b", storage_options={"acount_key": "not-to-be-seen"})
    container = open_container(source, Path("/"), S3Settings())
    with pytest.raises(InputError, match="'acount_key' is not valid") as caught:
        keys(container)
    assert "not-to-be-seen" not in str(caught.value) + repr(container)
