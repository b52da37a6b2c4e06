"""Containers of the tests, and what they list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.storage.container import Container, ObjectVersion
from headwater.storage.local import Folder
from headwater.storage.open import open_container
from headwater.storage.s3.bucket import Bucket
from tests.support.stack import S3ForTests


def opened_folder(path: Path, **settings: Any) -> Folder:
    container = open_container(ObjectsSourceSettings(url=str(path), **settings), Path("/"), S3Settings())
    assert isinstance(container, Folder)
    return container


def opened_bucket(s3: S3ForTests, url: str, **settings: Any) -> Bucket:
    container = open_container(ObjectsSourceSettings(url=f"s3://{url}", **settings), Path("/"), S3Settings(**vars(s3)))
    assert isinstance(container, Bucket)
    return container


def listed(container: Container, start_after: str | None = None) -> dict[str, ObjectVersion]:
    """Key → version, in the order of the listing."""
    versions = [ObjectVersion(**row) for page in container.listing(start_after) for row in page.to_pylist()]
    assert len({version.key for version in versions}) == len(versions)
    return {version.key: version for version in versions}


def keys(container: Container, start_after: str | None = None) -> list[str]:
    return list(listed(container, start_after))


def by_bytes(keys: list[str]) -> list[str]:
    """The oracle of a listing's order."""
    return sorted(keys, key=lambda key: key.encode())
