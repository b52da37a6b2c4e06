"""A key is a text of up to 1,024 bytes, and nothing else: what looks like a path, an escape or a pattern is not one."""

from __future__ import annotations

import pytest

from headwater.model.errors import SourceUnreachable
from headwater.services.stack.s3 import versitygw_program
from headwater.storage.container import ObjectVersion
from tests.storage.containers import by_bytes, keys, listed, opened_bucket
from tests.support.s3_objects import put
from tests.support.stack import S3ForTests

pytestmark = pytest.mark.servers

_EVERYWHERE = [
    "a b.json", " leading and trailing ", "100%", "100%41.json", "100%2F.json", "1+1.json", "#1.json", "a?b=c&d.json",
    "\"double\" and 'single'.json", "<a>&amp;</a>.json", "[a]*{b,c}.json", "back\\slash.json", "day=2024-01-01/x;y,z:@!$()~^|`.json",
    "ünï/日本.json", "e\u0301.json", "\u00e9.json", "\ue000\ufffd.json", "\U0001f600.json", "tab\tnew line\rreturn\x7f.json",
    ".hidden", "...", "a/.../b", "~", "deep/" + "/".join(["x" * 200] * 5)[:1000] + "/" + "y" * 18,
]  # fmt: skip
_AS_FILES_NEVER = [
    "/leading", "//two", "a//b", "a///b", "./dot", "a/./b", "a/../b", "..", ".", "../up", "content/", "two//", "/", "//",
    "a", "a/b", "control\x01\x1f.json", "\uffff.json", "x" * 1024,
]  # fmt: skip


def _content(key: str) -> bytes:
    return f"the content of {key}".encode()


def test_keys_that_every_server_keeps(s3: S3ForTests, bucket: str) -> None:
    _check_all(s3, bucket, _EVERYWHERE)


def test_keys_that_are_no_paths(moto: S3ForTests, moto_bucket: str) -> None:
    _check_all(moto, moto_bucket, [*(key for key in _EVERYWHERE if "\n" not in key), *_AS_FILES_NEVER])


def _check_all(s3: S3ForTests, bucket: str, written: list[str]) -> None:
    put(s3, bucket, {key: _content(key) for key in written})
    assert max(len(key.encode()) for key in written) == 1024
    container = opened_bucket(s3, bucket, ignore=[])
    objects = listed(container)
    assert list(objects) == by_bytes(written)
    for key, version in objects.items():
        assert container.fetch(version) == _content(key), key
        assert container.fetch_range(version, 4, 11) == b"content", key
        assert container.stat(key) == version, key
        if "\x01" in key or "\uffff" in key:
            continue  # moto repeats what a listing starts after, and does not escape it
        assert keys(container, key) == [other for other in objects if other.encode() > key.encode()], key


def test_only_empty_objects_stand_for_folders(moto: S3ForTests, moto_bucket: str) -> None:
    put(moto, moto_bucket, {"folder/": b"", "data/": b"rows", "folder/a": b"x", "empty": b""})
    container = opened_bucket(moto, moto_bucket)
    assert keys(container) == ["data/", "empty", "folder/a"]
    assert container.stat("folder/") is None
    assert container.fetch(listed(container)["data/"]) == b"rows"
    assert keys(opened_bucket(moto, f"{moto_bucket}/folder/")) == ["folder/a"]


def test_a_prefix_that_is_no_path(moto: S3ForTests, moto_bucket: str) -> None:
    put(moto, moto_bucket, dict.fromkeys(["a//b/c", "a/b/c", "../x", "100%41+/y z"], b"x"))
    assert keys(opened_bucket(moto, f"{moto_bucket}/a//b")) == ["a//b/c"]
    assert keys(opened_bucket(moto, f"{moto_bucket}/..", ignore=[])) == ["../x"]
    assert keys(opened_bucket(moto, f"{moto_bucket}/100%41+/", pattern="y *")) == ["100%41+/y z"]


def test_keys_that_are_no_paths_are_signed_as_the_server_signs_them(s3: S3ForTests, bucket: str) -> None:
    if not versitygw_program().exists():
        pytest.skip("moto looks at no signature")
    # This server keeps `a//b` as `a/b`, but compares signatures before it looks for the file.
    put(s3, bucket, {"a/b": b"content"})
    container = opened_bucket(s3, bucket)
    version = listed(container)["a/b"]
    odd = ObjectVersion("a//b", version.etag, version.size, version.modified)
    assert container.fetch(odd) == b"content"
    wrong = opened_bucket(S3ForTests(s3.endpoint, s3.region, s3.access_key, "wrong-secret"), bucket)
    for refused in (version, odd):
        with pytest.raises(SourceUnreachable, match="SignatureDoesNotMatch") as caught:
            wrong.fetch(refused)
        assert "secret_key" in caught.value.hint
        assert "wrong-secret" not in str(caught.value)
        assert "StringToSign" not in str(caught.value)
