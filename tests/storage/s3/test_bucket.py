"""A bucket on a real server as a container: what is listed, which version is read, and what failures say."""

from __future__ import annotations

import dataclasses
import io
import pickle
import time

import pyarrow as pa
import pytest

from headwater.model.errors import SourceUnreachable
from headwater.storage.container import LISTING_COLUMNS, ObjectChanged, ObjectGone
from headwater.storage.s3.client import S3Client
from tests.storage.containers import by_bytes, keys, listed, opened_bucket
from tests.support.s3_objects import amazons_client, put, put_many
from tests.support.stack import S3ForTests

_PART = 5 * 1024 * 1024  # the least that S3 takes


def test_objects_are_listed_with_their_columns(s3: S3ForTests, bucket: str) -> None:
    put(s3, bucket, {"b.json": b"12345", "in/a.json": b"1", "empty.json": b"", "folder/": b""})
    container = opened_bucket(s3, bucket)
    assert {field.name: str(field.type) for field in next(container.listing()).schema} == LISTING_COLUMNS
    objects = listed(container)
    assert list(objects) == ["b.json", "empty.json", "in/a.json"]
    assert [version.size for version in objects.values()] == [5, 0, 1]
    head = amazons_client(s3).head_object(Bucket=bucket, Key="b.json")
    assert objects["b.json"].etag == head["ETag"].strip('"')
    assert objects["b.json"].modified // 1_000_000 == head["LastModified"].timestamp()
    assert container.fetch(objects["empty.json"]) == b""
    assert container.fetch(objects["b.json"]) == b"12345"
    assert container.stat("b.json") == objects["b.json"]
    assert container.stat("folder/") is None
    assert container.url("in/a b.json") == f"s3://{bucket}/in/a b.json"


def test_many_pages_come_in_the_order_of_bytes(s3: S3ForTests, bucket: str) -> None:
    names = [f"d{n % 11}{'-x' * (n % 2)}/{n:05}.json" for n in range(2500)]
    put_many(s3, bucket, dict.fromkeys(names, b"x"))
    container = dataclasses.replace(opened_bucket(s3, bucket), page_size=333)
    pages = list(container.listing())
    assert [page.num_rows for page in pages] == [333] * 7 + [169]
    everything = pa.Table.from_batches(pages)["key"].to_pylist()
    assert everything == by_bytes(names)
    after = everything[1200]
    assert keys(container, after) == everything[1201:]
    assert keys(container, after + "!") == everything[1201:]


def test_a_prefix_and_its_neighbours_are_told_apart(s3: S3ForTests, bucket: str) -> None:
    put(s3, bucket, dict.fromkeys(["in/a", "in/deep/b", "inn/c", "in-x/d", "_in/e"], b"x"))
    assert keys(opened_bucket(s3, f"{bucket}/in")) == ["in/a", "in/deep/b"]
    assert keys(opened_bucket(s3, f"{bucket}/in/")) == ["in/a", "in/deep/b"]
    assert keys(opened_bucket(s3, f"{bucket}/in/", recursive=False)) == ["in/a"]
    assert keys(opened_bucket(s3, f"{bucket}/in/", pattern="*")) == ["in/a"]
    assert keys(opened_bucket(s3, f"{bucket}/in/", pattern="d*/*")) == ["in/deep/b"]
    assert keys(opened_bucket(s3, f"{bucket}/nothing/")) == []
    assert opened_bucket(s3, f"{bucket}/in").stat("inn/c") is None
    assert opened_bucket(s3, f"{bucket}/in").address == f"s3://{bucket}/in/"


def test_an_object_overwritten_in_the_same_second_has_another_etag(s3: S3ForTests, bucket: str) -> None:
    container = opened_bucket(s3, bucket)
    while True:
        put(s3, bucket, {"a": b"old"})
        before = listed(container)["a"]
        put(s3, bucket, {"a": b"new"})
        after = listed(container)["a"]
        if (before.modified, before.size) == (after.modified, after.size):
            break
    assert after.etag != before.etag
    for read in (container.fetch, lambda version: container.fetch_range(version, 0, 2)):
        with pytest.raises(ObjectChanged, match="has changed"):
            read(before)
    assert container.fetch(after) == b"new"


def test_a_renamed_object_is_gone_and_new(s3: S3ForTests, bucket: str) -> None:
    put(s3, bucket, {"a": b"content"})
    container = opened_bucket(s3, bucket)
    before = listed(container)["a"]
    client = amazons_client(s3)
    client.copy_object(Bucket=bucket, Key="b", CopySource={"Bucket": bucket, "Key": "a"})
    client.delete_object(Bucket=bucket, Key="a")
    assert keys(container) == ["b"]
    assert container.stat("a") is None
    with pytest.raises(ObjectGone, match=f"s3://{bucket}/a was deleted"):
        container.fetch(before)


def test_an_object_of_several_parts_is_read(s3: S3ForTests, bucket: str) -> None:
    client = amazons_client(s3)
    upload = client.create_multipart_upload(Bucket=bucket, Key="big")["UploadId"]
    content = bytes(range(256)) * (_PART // 256) + b"the end"
    parts = []
    for number, part in ((1, content[:_PART]), (2, content[_PART:])):
        sent = client.upload_part(Bucket=bucket, Key="big", UploadId=upload, PartNumber=number, Body=io.BytesIO(part))
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    client.complete_multipart_upload(Bucket=bucket, Key="big", UploadId=upload, MultipartUpload={"Parts": parts})
    container = opened_bucket(s3, bucket)
    version = listed(container)["big"]
    assert version.etag.endswith("-2")  # no digest of the content
    assert container.fetch(version) == content
    assert container.fetch_range(version, _PART - 2, _PART + 3) == content[_PART - 2 : _PART + 3]
    assert container.fetch_range(version, _PART, 10 * _PART) == b"the end"
    assert container.fetch_range(version, len(content), 10 * _PART) == b""


def test_young_objects_wait_by_the_servers_clock(s3: S3ForTests, bucket: str) -> None:
    put(s3, bucket, {"a": b"x"})
    container = opened_bucket(s3, bucket, min_age="1s")
    deadline = time.monotonic() + 30
    seen = [keys(container)]
    while seen[-1] == [] and time.monotonic() < deadline:
        seen.append(keys(container))
    assert seen[-1] == ["a"]
    assert keys(opened_bucket(s3, bucket, min_age="1h")) == []
    assert opened_bucket(s3, bucket, min_age="1h").stat("a") is None
    answer = S3Client(container.access).get("", {"list-type": "2"})
    assert abs(answer.server_time / 1e6 - time.time()) < 60
    assert "date" in answer.headers


def test_a_container_travels_and_shows_no_secret(s3: S3ForTests, bucket: str) -> None:
    put(s3, bucket, {"a": b"content"})
    container = opened_bucket(s3, bucket)
    version = listed(container)["a"]
    assert container.fetch(version) == b"content"
    arrived = pickle.loads(pickle.dumps(container))  # noqa: S301 - our own
    assert arrived.fetch(version) == b"content"
    assert s3.secret_key not in repr(container) + repr(arrived)
    assert f"'{s3.access_key}'" not in repr(container)


def test_a_bucket_that_is_not_there_is_named(s3: S3ForTests) -> None:
    with pytest.raises(SourceUnreachable) as caught:
        keys(opened_bucket(s3, "no-such-bucket-here"))
    assert "s3://no-such-bucket-here at http://127.0.0.1:" in str(caught.value)
    assert "NoSuchBucket" in str(caught.value)
    assert "→ check the bucket's name and the endpoint" in str(caught.value)


def test_a_bucket_that_is_gone_while_objects_are_read_is_told_from_an_object_that_is(
    s3: S3ForTests, bucket: str
) -> None:
    put(s3, bucket, {"a": b"x"})
    container = opened_bucket(s3, bucket)
    version = listed(container)["a"]
    amazons_client(s3).delete_object(Bucket=bucket, Key="a")
    amazons_client(s3).delete_bucket(Bucket=bucket)
    for key in ("a", "a//b"):  # one by each of the two clients
        with pytest.raises(SourceUnreachable, match="NoSuchBucket"):
            container.fetch(dataclasses.replace(version, key=key))


def test_nobody_at_the_endpoint_is_told_in_time() -> None:
    nowhere = S3ForTests("http://127.0.0.1:9", "us-east-1", "k", "not-to-be-seen")
    container = opened_bucket(nowhere, "b")
    with pytest.raises(SourceUnreachable, match=r"s3://b at http://127\.0\.0\.1:9: Connection refused") as caught:
        keys(container)
    assert "→ check that the server runs at this endpoint" in str(caught.value)
    assert "not-to-be-seen" not in str(caught.value)
