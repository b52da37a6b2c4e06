"""Opens the bucket or folder that the settings of a source name."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.storage.container import Container, Selection


def open_container(settings: ObjectsSourceSettings, folder: Path, s3: S3Settings) -> Container:
    """A path without a scheme is relative to `folder`. Sends no request.

    `s3` are the project's settings, for a source without `s3`.
    """
    scheme, separator, rest = settings.url.partition("://")
    if not separator:
        return _folder(settings, folder / settings.url)
    if scheme == "file":
        return _folder(settings, Path(rest))
    bucket, _, prefix = rest.partition("/")
    selection = Selection.of(settings, prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
    if scheme == "s3":
        from headwater.storage.s3.bucket import Bucket
        from headwater.storage.s3.credentials import find_access

        return Bucket(find_access(bucket, settings.s3 or s3), selection)
    from headwater.storage.gcs_azure import CloudBucket

    return CloudBucket(scheme, bucket, selection, settings.storage_options)


def _folder(settings: ObjectsSourceSettings, path: Path) -> Container:
    from headwater.storage.local import Folder

    return Folder(os.path.abspath(path), Selection.of(settings, ""))  # noqa: PTH100 - links stay as they are written
