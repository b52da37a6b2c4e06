"""From settings to a bucket or a folder."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.config.objects_source import ObjectsSource
from headwater.config.s3 import S3Settings
from headwater.sources.objects.container import Container
from headwater.sources.objects.selection import Selection


def open_container(settings: ObjectsSource, folder: Path, s3: S3Settings) -> Container:
    """What `url` names; a path without a scheme is taken from `folder`. Asks nobody yet.

    `s3` is the project's, for a source that has none of its own.
    """
    scheme, separator, rest = settings.url.partition("://")
    if not separator:
        return _folder(settings, folder / settings.url)
    if scheme == "file":
        return _folder(settings, Path(rest))
    bucket, _, prefix = rest.partition("/")
    selection = Selection.of(settings, prefix if not prefix or prefix.endswith("/") else f"{prefix}/")
    if scheme == "s3":
        from headwater.sources.objects.bucket import Bucket  # noqa: PLC0415 - folders need none of it
        from headwater.sources.objects.s3_access import find_access  # noqa: PLC0415

        return Bucket(find_access(bucket, settings.s3 or s3), selection)
    from headwater.sources.objects.cloud import CloudBucket  # noqa: PLC0415

    return CloudBucket(scheme, bucket, selection, settings.storage_options)


def _folder(settings: ObjectsSource, path: Path) -> Container:
    from headwater.sources.objects.folder import Folder  # noqa: PLC0415 - buckets need none of it

    return Folder(os.path.abspath(path), Selection.of(settings, ""))  # noqa: PTH100 - links stay as they are written
