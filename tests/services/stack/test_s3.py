"""An S3 server of our own: objects are kept, and where versitygw was never built moto takes its place."""

from __future__ import annotations

import pytest
from pyarrow import fs

from headwater.services.stack.s3 import S3, client
from headwater.services.stack.service import running
from tests.support.stack import S3ForTests

pytestmark = pytest.mark.servers


def test_a_bucket_is_the_tests_own_and_keeps_objects(s3: S3ForTests, bucket: str):
    with s3.files.open_output_stream(f"{bucket}/a/b") as stream:
        stream.write(b"content")
    assert s3.files.open_input_stream(f"{bucket}/a/b").read() == b"content"
    (file_info,) = [info for info in s3.files.get_file_info(fs.FileSelector(bucket, recursive=True)) if info.is_file]
    assert (file_info.path, file_info.size) == (f"{bucket}/a/b", 7)


def test_moto_serves_where_versitygw_was_never_built(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with running(S3(may_build=False), tmp_path) as server:
        assert server.recipe.version.startswith("moto ")
        client(server.address).create_dir("bucket")
        assert [info.path for info in client(server.address).get_file_info(fs.FileSelector(""))] == ["bucket"]


def test_objects_survive_a_power_cut(tmp_path):
    recipe = S3(may_build=False)
    if recipe.version.startswith("moto "):
        pytest.skip("moto keeps objects in memory; build versitygw first")
    with running(recipe, tmp_path) as server:
        files = client(server.address)
        files.create_dir("bucket")
        with files.open_output_stream("bucket/key") as stream:
            stream.write(b"kept")
        server.kill()
        server.start()
        assert files.open_input_stream("bucket/key").read() == b"kept"
