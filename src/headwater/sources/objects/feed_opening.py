"""From settings to a feed of notifications."""

from __future__ import annotations

from pathlib import Path

from headwater.config.objects_source import ObjectsSource
from headwater.config.s3 import S3Settings
from headwater.progress.clock import Clock, wall_clock
from headwater.sources.objects.container import Container
from headwater.sources.objects.feed import Feed
from headwater.sources.objects.listening import Listening
from headwater.sources.objects.opening import open_container


def open_feed(
    settings: ObjectsSource, container: Container, folder: Path, s3: S3Settings, clock: Clock = wall_clock
) -> Listening | None:
    """Whoever listens for the source; None: nobody does. Relative paths are taken from `folder`. Asks nobody yet."""
    feed = _feed(settings, folder, s3)
    return Listening(feed, container, settings, clock) if feed else None


def _feed(settings: ObjectsSource, folder: Path, s3: S3Settings) -> Feed | None:
    if settings.feed is None:
        return None
    if settings.feed.kafka:
        from headwater.sources.objects.feed_kafka import TopicFeed  # noqa: PLC0415 - folders need no librdkafka

        return TopicFeed(settings.feed.kafka, folder)
    from headwater.sources.objects.feed_folder import FolderFeed  # noqa: PLC0415 - topics need none of it

    # In the same account as the objects. With what writers keep beside their data left out, as there.
    files = ObjectsSource(url=settings.feed.folder or "", s3=settings.s3, storage_options=settings.storage_options)
    return FolderFeed(open_container(files, folder, s3))
