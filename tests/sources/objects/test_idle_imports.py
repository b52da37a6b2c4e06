"""What a poll that finds nothing new must not load: each of these takes from 0.05 to 3 seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stack import S3ForTests

_LISTING = """
import sys
from pathlib import Path
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.config.project import S3Settings
from headwater.storage.open import open_container

container = open_container(ObjectsSourceSettings(url=sys.argv[1], min_age="1h", pattern="**/*.json"), Path("/"), S3Settings())
assert not {"pyarrow", "obstore", "urllib3"} & set(sys.modules), "loaded before it is needed"
assert sum(page.num_rows for page in container.listing()) == 0
print(sorted({"pandas", "obstore", "botocore", "pyspark", "pyarrow.dataset"} & set(sys.modules)))
"""


def test_a_folder_is_listed_without_pandas(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch()
    (tmp_path / "b.csv").touch()
    assert _loaded(str(tmp_path), {}) == "[]"


@pytest.mark.servers
def test_a_bucket_is_listed_without_pandas_and_obstore(s3: S3ForTests, bucket: str) -> None:
    with s3.files.open_output_stream(f"{bucket}/b.csv") as out:
        out.write(b"x")
    assert _loaded(f"s3://{bucket}", s3.environment) == "[]"


def _loaded(url: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", _LISTING, url], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
