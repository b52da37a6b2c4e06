"""Notifications from a folder or a bucket: files with one each, or with one on each line.

Files are taken in the order of their names, and the position is a name. New files usually have greater names than all
before, but not always: several writers overtake each other. So the last thousand files behind the position are known by
name and version, and one that appears among them is found. A name that comes later than that is left to the listing of
the objects. A file that has grown is read again, whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import islice

from headwater.model.marks import Json
from headwater.sources.objects.container import Container, ObjectChanged, ObjectGone, ObjectRefused, ObjectVersion
from headwater.sources.objects.feed import FeedGap, Heard, Place, Told, unreadable
from headwater.sources.objects.feed_events import Event, Parsed, parse

_RECENT = 1_000  # files that are compared by name and version
_AT_ONCE = 1_000  # new files
_KIND = "files"


class FolderFeed:
    """The files of one container."""

    def __init__(self, container: Container, recent: int = _RECENT, at_once: int = _AT_ONCE) -> None:
        self._container, self._recent, self._at_once = container, recent, at_once

    def end(self) -> Json:
        last: list[ObjectVersion] = []
        for file in self._files(""):
            last.append(file)
            if len(last) > 2 * self._recent:
                del last[: -self._recent - 1]
        return self._position("", last, ())

    def hear(self, position: Json, skip: Collection[Place]) -> Heard:
        after, seen = self._known(position)
        files = self._files(after)
        walked: list[ObjectVersion] = []  # in order, known ones and new ones
        new: list[ObjectVersion] = []
        for file in files:
            walked.append(file)
            if _short(file) not in seen:
                new.append(file)
                if len(new) >= self._at_once:
                    break
        told: list[Told] = []
        problems = []
        fresh = [file for file in new if _place(file) not in skip]
        for file in fresh:
            parsed = self._parsed(file)
            told += [Told(_dated(event, file), _place(file)) for event in parsed.events]
            problems += [(file.key, why) for why in parsed.problems]
        return Heard(
            told=told,
            places=[_place(file) for file in fresh],
            count=len(new),
            more=bool(list(islice(files, 1))),
            warnings=unreadable(self._container.address, problems),
            position=lambda held: self._position(after, walked, held),
        )

    def _files(self, after: str) -> Iterator[ObjectVersion]:
        for page in self._container.listing(after or None):
            for row in page.to_pylist():
                yield ObjectVersion(**row)

    def _parsed(self, file: ObjectVersion) -> Parsed:
        try:
            return parse(self._container.fetch(file))
        except ObjectGone:
            return Parsed()  # somebody tidies up
        except (ObjectChanged, ObjectRefused) as error:
            return Parsed(problems=[str(error)])

    def _position(self, after: str, walked: list[ObjectVersion], held: Collection[Place]) -> Json:
        """The recent files, all that are behind one that must be heard again, and the name before them."""
        firsts = [number for number, file in enumerate(walked) if _place(file) in held]
        begin = min([max(len(walked) - self._recent, 0), *firsts])
        return {
            "kind": _KIND,
            "folder": self._container.address,
            "after": walked[begin - 1].key if begin else after,
            "seen": [_short(file) for file in walked[begin:] if _place(file) not in held],
        }

    def _known(self, position: Json) -> tuple[str, set[str]]:
        if position.get("kind") != _KIND or position.get("folder") != self._container.address:
            raise FeedGap(f"{self._container.address} is not the feed that was read until now")
        return position["after"], set(position["seen"])


def _place(file: ObjectVersion) -> Place:
    return file.key, file.etag


def _short(file: ObjectVersion) -> str:
    """Of a file's name and version: the mark holds a thousand of them. Two that are alike cost a wait for the listing."""
    return blake2b(f"{file.key}\0{file.etag}".encode(), digest_size=6).hexdigest()


def _dated(event: Event, file: ObjectVersion) -> Event:
    return event if event.at else Event(event.bucket, event.key, event.removed, file.modified / 1e6)
