"""A bucket's life, end to end on a real server: each version of an object lands once, whatever its key, date or size."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path

import pytest

from tests.support.s3_objects import amazons_client, put, put_many
from tests.support.stack import S3ForTests
from tests.support.world import World

ODD_KEYS = [
    "with space.jsonl",
    "100%.jsonl",
    "a+b.jsonl",
    "a#b.jsonl",
    "a?b=c&d.jsonl",
    'it\'s "quoted".jsonl',
    "übung/日本/😀.jsonl",
    "[glob]*{x,y}.jsonl",
    "back\\slash.jsonl",
    "/".join(["k" * 200] * 4) + "/" + "z" * 214 + ".jsonl",  # 1,024 bytes
]


class S3Objects(World):
    """A pipeline from the bucket into files: no JVM."""

    def __init__(self, folder: Path, s3: S3ForTests, bucket: str, **more: object) -> None:
        self.s3, self.bucket = s3, bucket
        self.client = amazons_client(s3)
        source = {"url": f"s3://{bucket}/", "format": "json", "schema": "version string", **more}
        sink = {"path": "./files", "format": "json"}
        super().__init__(folder, {"objects": source}, [{"files": sink}], lease="1m", project={"s3": vars(s3)})
        self.expected: Counter[tuple[str, str]] = Counter()

    def put(self, key: str, version: str, rows: int = 1) -> None:
        put(self.s3, self.bucket, {key: self.content(version, rows)})
        self.expected[key, version] += rows

    @staticmethod
    def content(version: str, rows: int = 1) -> bytes:
        return f'{{"version": "{version}"}}\n'.encode() * rows

    def landed(self) -> Counter[tuple[str, str]]:
        prefix = f"s3://{self.bucket}/"
        return Counter((row["object_url"].removeprefix(prefix), row["version"]) for row in self.published())

    def check(self) -> None:
        self.catch_up()
        assert self.landed() == +self.expected


@pytest.fixture
def objects(tmp_path: Path, s3: S3ForTests, bucket: str) -> S3Objects:
    return S3Objects(tmp_path, s3, bucket)


def test_new_updated_renamed_deleted_empty(objects: S3Objects) -> None:
    objects.put("a.jsonl", "1", rows=2)
    objects.put("empty.jsonl", "none", rows=0)
    objects.check()
    objects.put("a.jsonl", "2, longer")
    objects.put("0-before-all.jsonl", "1")
    objects.check()
    for version in ("3", "4", "5"):  # of the same size, within one second
        objects.put("a.jsonl", version)
        objects.check()
    objects.client.copy_object(Bucket=objects.bucket, Key="renamed.jsonl", CopySource=f"{objects.bucket}/a.jsonl")
    objects.client.delete_object(Bucket=objects.bucket, Key="a.jsonl")
    objects.expected["renamed.jsonl", "5"] += 1
    objects.check()
    objects.put("a.jsonl", "5")  # back again, as it was
    objects.check()
    objects.put("empty.jsonl", "no longer")
    objects.check()


def test_odd_keys(objects: S3Objects) -> None:
    assert max(len(key.encode()) for key in ODD_KEYS) == 1024
    for key in ODD_KEYS:
        objects.put(key, "1")
    objects.check()
    for key in ODD_KEYS:
        objects.put(key, "2")
    objects.check()


def test_an_object_of_several_parts(objects: S3Objects) -> None:
    """Its etag is no digest of the content."""
    part = objects.content("part", 300_000)
    upload = objects.client.create_multipart_upload(Bucket=objects.bucket, Key="big.jsonl")["UploadId"]
    place = {"Bucket": objects.bucket, "Key": "big.jsonl", "UploadId": upload}
    parts = [
        {"PartNumber": number, "ETag": objects.client.upload_part(**place, PartNumber=number, Body=part)["ETag"]}
        for number in (1, 2)
    ]
    objects.client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    objects.expected["big.jsonl", "part"] += 600_000
    objects.check()


def test_only_the_end_is_listed_where_keys_grow(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    objects = S3Objects(tmp_path, s3, bucket, order="lexical")
    objects.put("2026-03-01.jsonl", "1")
    objects.check()
    objects.put("2026-03-02.jsonl", "1")
    objects.check()
    put(s3, bucket, {"2026-02-28.jsonl": objects.content("late")})  # what `order: lexical` says not to look for
    objects.check()


def test_a_limit_makes_several_windows(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    objects = S3Objects(tmp_path, s3, bucket, max_objects=3)
    for number in range(8):
        objects.put(f"{number}.jsonl", "1")
    first = objects.run()
    assert first.more
    assert sum(objects.landed().values()) == 3
    objects.check()


@pytest.mark.soak
def test_twenty_thousand_objects_in_pages(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    objects = S3Objects(tmp_path, s3, bucket)
    contents = {f"{number % 7}/{number:05d}.jsonl": objects.content(str(number)) for number in range(20_000)}
    put_many(s3, bucket, contents)
    objects.expected.update((key, key[2:7].lstrip("0") or "0") for key in contents)
    objects.check()
    assert objects.run().outcome == "nothing new"
    objects.put("3/00003.jsonl", "changed")
    objects.check()


@pytest.mark.soak
def test_a_million_tiny_files_in_one_folder(tmp_path: Path) -> None:
    """Listed, compared and staged by one cycle; memory does not follow their number."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    for number in range(1_000_000):
        (inbox / f"{number:07d}.txt").touch()
    source = {"url": str(inbox), "format": "text", "max_objects": 10}
    world = World(tmp_path, {"objects": source}, [{"files": {"path": "./out"}}], lease="10m")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert world.run().outcome == "landed"
    with world.pipeline() as pipeline, pipeline.bookmarks() as bookmarks:
        assert bookmarks.count()["landed"][0] + bookmarks.count()["pending"][0] == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
