"""A bucket's life, end to end on a real server: each version of an object lands once, whatever its key, date or size."""

from __future__ import annotations

import json
import resource
from collections import Counter
from pathlib import Path

import pytest

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from tests.support.s3_objects import amazons_client, put, put_many
from tests.support.stack import S3ForTests

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


class Lake:
    """A pipeline from the bucket into files: no JVM."""

    def __init__(self, folder: Path, s3: S3ForTests, bucket: str, **more: object) -> None:
        self.folder, self.s3, self.bucket = folder, s3, bucket
        self.client = amazons_client(s3)
        access = {name: getattr(s3, name) for name in ("endpoint", "region", "access_key", "secret_key")}
        (folder / "headwater.yaml").write_text(json.dumps({"s3": access}))
        source = {"url": f"s3://{bucket}/", "format": "json", "schema": "version string", **more}
        pipeline = {
            "pipeline": "objects",
            "source": {"objects": source},
            "sinks": [{"files": {"path": "./out", "format": "json"}}],
        }
        (folder / "objects.yaml").write_text(json.dumps(pipeline))
        self.expected: Counter[tuple[str, str]] = Counter()

    def put(self, key: str, version: str, rows: int = 1) -> None:
        put(self.s3, self.bucket, {key: self.content(version, rows)})
        self.expected[key, version] += rows

    @staticmethod
    def content(version: str, rows: int = 1) -> bytes:
        return f'{{"version": "{version}"}}\n'.encode() * rows

    def run(self) -> CycleResult:
        with Project(load_project(self.folder), self.folder) as project:
            return project.pipelines([self.folder / "objects.yaml"])[0].run_once()

    def run_to_the_end(self) -> None:
        while (result := self.run()).outcome == "landed":
            pass
        assert result.outcome == "nothing new", result.error

    def landed(self) -> Counter[tuple[str, str]]:
        files = [path for path in (self.folder / "out").rglob("*.json*") if path.name[0] not in "._"]
        rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        prefix = f"s3://{self.bucket}/"
        return Counter((row["object_url"].removeprefix(prefix), row["version"]) for row in rows)

    def check(self) -> None:
        self.run_to_the_end()
        assert self.landed() == +self.expected


@pytest.fixture
def lake(tmp_path: Path, s3: S3ForTests, bucket: str) -> Lake:
    return Lake(tmp_path, s3, bucket)


def test_new_updated_renamed_deleted_empty(lake: Lake) -> None:
    lake.put("a.jsonl", "1", rows=2)
    lake.put("empty.jsonl", "none", rows=0)
    lake.check()
    lake.put("a.jsonl", "2, longer")
    lake.put("0-before-all.jsonl", "1")
    lake.check()
    for version in ("3", "4", "5"):  # of the same size, within one second
        lake.put("a.jsonl", version)
        lake.check()
    lake.client.copy_object(Bucket=lake.bucket, Key="renamed.jsonl", CopySource=f"{lake.bucket}/a.jsonl")
    lake.client.delete_object(Bucket=lake.bucket, Key="a.jsonl")
    lake.expected["renamed.jsonl", "5"] += 1
    lake.check()
    lake.put("a.jsonl", "5")  # back again, as it was
    lake.check()
    lake.put("empty.jsonl", "no longer")
    lake.check()


def test_odd_keys(lake: Lake) -> None:
    assert max(len(key.encode()) for key in ODD_KEYS) == 1024
    for key in ODD_KEYS:
        lake.put(key, "1")
    lake.check()
    for key in ODD_KEYS:
        lake.put(key, "2")
    lake.check()


def test_an_object_of_several_parts(lake: Lake) -> None:
    """Its etag is no digest of the content."""
    part = lake.content("part", 300_000)
    upload = lake.client.create_multipart_upload(Bucket=lake.bucket, Key="big.jsonl")["UploadId"]
    place = {"Bucket": lake.bucket, "Key": "big.jsonl", "UploadId": upload}
    parts = [
        {"PartNumber": number, "ETag": lake.client.upload_part(**place, PartNumber=number, Body=part)["ETag"]}
        for number in (1, 2)
    ]
    lake.client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    lake.expected["big.jsonl", "part"] += 600_000
    lake.check()


def test_only_the_end_is_listed_where_keys_grow(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    lake = Lake(tmp_path, s3, bucket, order="lexical")
    lake.put("2026-03-01.jsonl", "1")
    lake.check()
    lake.put("2026-03-02.jsonl", "1")
    lake.check()
    put(s3, bucket, {"2026-02-28.jsonl": lake.content("late")})  # what `order: lexical` says not to look for
    lake.check()


def test_a_limit_makes_several_windows(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    lake = Lake(tmp_path, s3, bucket, max_objects=3)
    for number in range(8):
        lake.put(f"{number}.jsonl", "1")
    first = lake.run()
    assert first.more
    assert sum(lake.landed().values()) == 3
    lake.check()


@pytest.mark.soak
def test_twenty_thousand_objects_in_pages(tmp_path: Path, s3: S3ForTests, bucket: str) -> None:
    lake = Lake(tmp_path, s3, bucket)
    contents = {f"{number % 7}/{number:05d}.jsonl": lake.content(str(number)) for number in range(20_000)}
    put_many(s3, bucket, contents)
    lake.expected.update((key, key[2:7].lstrip("0") or "0") for key in contents)
    lake.check()
    assert lake.run().outcome == "nothing new"
    lake.put("3/00003.jsonl", "changed")
    lake.check()


@pytest.mark.soak
def test_a_million_tiny_files_in_one_folder(tmp_path: Path) -> None:
    """Listed, compared and staged by one cycle; memory does not follow their number."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    for number in range(1_000_000):
        (inbox / f"{number:07d}.txt").touch()
    source = {"url": str(inbox), "format": "text", "max_objects": 10}
    pipeline = {
        "pipeline": "many",
        "source": {"objects": source},
        "sinks": [{"files": {"path": str(tmp_path / "out")}}],
    }
    (tmp_path / "many.yaml").write_text(json.dumps(pipeline))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Project(load_project(tmp_path), tmp_path) as project:
        one = project.pipelines([tmp_path / "many.yaml"])[0]
        assert one.run_once().outcome == "landed"
        with one.bookmarks() as desk:
            assert desk.count()["landed"][0] + desk.count()["pending"][0] == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
