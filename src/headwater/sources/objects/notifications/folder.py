"""Notifications from a folder or a bucket: files with one each, or with one on each line.

Files are read in the order of their names, and the position is a name. New files usually have greater names than all
earlier ones, but several writers may overtake each other. So the position also holds the names and versions of the last
thousand files, and a new file among them is noticed. A file with an even smaller name is left to the listing of the
objects. A file that has grown is read again, whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice

from headwater.model.position.marks import Json
from headwater.sources.objects.notifications.feed import (
    Event,
    FeedEvent,
    FeedGap,
    FeedPage,
    NotificationId,
    Parsed,
    parse,
    unreadable_warning,
)
from headwater.storage.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion

_MAX_RECENT = 1_000  # files that are compared by name and version
_MAX_READ = 1_000  # new files
_POSITION_KIND = "files"


class FolderFeed:
    """The files of one container."""

    def __init__(self, container: Container, recent: int = _MAX_RECENT, max_read: int = _MAX_READ) -> None:
        self._container, self._recent, self._max_read = container, recent, max_read

    def end(self) -> Json:
        last: list[ObjectVersion] = []
        for file in self._files(""):
            last.append(file)
            if len(last) > 2 * self._recent:
                del last[: -self._recent - 1]
        return self._position("", last, ())

    def read_after(self, position: Json, skip: Collection[NotificationId]) -> FeedPage:
        after, digests = self._parse_position(position)
        files = self._files(after)
        listed: list[ObjectVersion] = []  # known and new ones, in order
        new: list[ObjectVersion] = []
        for file in files:
            listed.append(file)
            if _digest(file) not in digests:
                new.append(file)
                if len(new) >= self._max_read:
                    break
        events: list[FeedEvent] = []
        problems = []
        fresh = [file for file in new if _id(file) not in skip]
        for file in fresh:
            parsed = self._parse_file(file)
            events += [FeedEvent(_with_time(event, file), _id(file)) for event in parsed.events]
            problems += [(file.key, reason) for reason in parsed.problems]
        return FeedPage(
            events=events,
            ids=[_id(file) for file in fresh],
            count=len(new),
            more=bool(list(islice(files, 1))),
            warnings=unreadable_warning(self._container.address, problems),
            position=lambda retained: self._position(after, listed, retained),
        )

    def _files(self, after: str) -> Iterator[ObjectVersion]:
        for page in self._container.listing(after or None):
            for row in page.to_pylist():
                yield ObjectVersion(**row)

    def _parse_file(self, file: ObjectVersion) -> Parsed:
        try:
            return parse(self._container.fetch(file))
        except ObjectGone:
            return Parsed()  # deleted by a clean-up
        except (ObjectChanged, ObjectRefused) as error:
            return Parsed(problems=[str(error)])

    def _position(self, after: str, listed: list[ObjectVersion], retained: Collection[NotificationId]) -> Json:
        """The recent files, back to the first that must be read again, and the name before them."""
        firsts = [number for number, file in enumerate(listed) if _id(file) in retained]
        begin = min([max(len(listed) - self._recent, 0), *firsts])
        return {
            "kind": _POSITION_KIND,
            "folder": self._container.address,
            "after": listed[begin - 1].key if begin else after,
            "seen": [_digest(file) for file in listed[begin:] if _id(file) not in retained],
        }

    def _parse_position(self, position: Json) -> tuple[str, set[str]]:
        if position.get("kind") != _POSITION_KIND or position.get("folder") != self._container.address:
            raise FeedGap(f"{self._container.address} is not the feed of the stored position")
        return position["after"], set(position["seen"])


def _id(file: ObjectVersion) -> NotificationId:
    return file.key, file.etag


def _digest(file: ObjectVersion) -> str:
    """A digest of name and version: the mark holds a thousand. A collision delays a file until the next listing."""
    return blake2b(f"{file.key}\0{file.etag}".encode(), digest_size=6).hexdigest()


def _with_time(event: Event, file: ObjectVersion) -> Event:
    return event if event.at else Event(event.bucket, event.key, event.removed, file.modified / 1e6)
