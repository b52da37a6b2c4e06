"""Bookmarks as a file: one entry per topic and partition (a bucket and an object's key), as other tools write them.

`Bookmarks` holds them in memory and in one JSON file. A pipeline's own bookmarks are in the ledger of its progress
store; `headwater bookmarks export` and `import` convert between the two.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.model.errors import InputError, UnknownName

Json = Any
VERSION = "1.0"


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Bookmark:
    """The offset read in one partition of a topic. For objects: bucket, key, and when it was read."""

    topic: str
    partition: str
    offset: int = 0
    timestamp: dt.datetime = field(default_factory=_now)
    metadata: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("topic", "partition"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"a bookmark's {name} is a non-empty text, not {value!r}")
        if not isinstance(self.offset, int) or isinstance(self.offset, bool) or self.offset < 0:
            raise InputError(f"a bookmark's offset is an integer from 0, not {self.offset!r}")
        if not isinstance(self.timestamp, dt.datetime) or self.timestamp.tzinfo is None:
            raise InputError(f"a bookmark's timestamp is a timestamp with a time zone, not {self.timestamp!r}")
        if not isinstance(self.metadata, Mapping):
            raise InputError(f"a bookmark's metadata is a mapping, not {self.metadata!r}")

    @property
    def timestamp_utc(self) -> dt.datetime:
        """The timestamp in UTC."""
        return self.timestamp.astimezone(dt.UTC)

    @property
    def timestamp_utc_iso(self) -> str:
        """The same as text: 2026-03-02T08:00:00Z."""
        return iso(self.timestamp)

    def to_dict(self) -> dict[str, Json]:
        """What `from_dict` reads."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_utc_iso,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Json]) -> Bookmark:
        """Without a timestamp: now. Without metadata: empty."""
        if not isinstance(data, Mapping) or not {"topic", "partition", "offset"} <= set(data):
            raise InputError(f"a bookmark has topic, partition and offset, not {_short(data)}")
        timestamp = data.get("timestamp")
        metadata = data.get("metadata")
        return cls(
            data["topic"],
            data["partition"],
            data["offset"],
            _now() if timestamp is None else parse_timestamp(timestamp),
            {} if metadata is None else metadata,
        )

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Bookmark:
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(f"not a bookmark: {error}") from None
        return cls.from_dict(data)


class Bookmarks:
    """Bookmarks by topic and partition; safe to use from several threads. Nothing is written before `save`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._bookmarks: dict[tuple[str, str], Bookmark] = {}
        self._created: dt.datetime | None = None
        self._lock = threading.RLock()

    def add(self, bookmark: Bookmark) -> None:
        """Add it, or replace the existing one."""
        with self._lock:
            self._bookmarks[bookmark.topic, bookmark.partition] = bookmark

    def get(self, topic: str, partition: str) -> Bookmark:
        with self._lock:
            return self._existing(topic, partition)

    def all(self) -> list[Bookmark]:
        """Ordered by topic, then by partition."""
        with self._lock:
            return [self._bookmarks[key] for key in sorted(self._bookmarks)]

    def by_topic(self, topic: str) -> list[Bookmark]:
        """Ordered by partition."""
        return [bookmark for bookmark in self.all() if bookmark.topic == topic]

    def remove(self, topic: str, partition: str) -> None:
        with self._lock:
            self._existing(topic, partition)
            del self._bookmarks[topic, partition]

    def update_offset(self, topic: str, partition: str, offset: int) -> Bookmark:
        """Set the offset of an existing one; its timestamp becomes now."""
        with self._lock:
            updated = replace(self._existing(topic, partition), offset=offset, timestamp=_now())
            self._bookmarks[topic, partition] = updated
            return updated

    def count(self) -> int:
        with self._lock:
            return len(self._bookmarks)

    def clear(self) -> None:
        with self._lock:
            self._bookmarks.clear()

    def exists(self) -> bool:
        """Whether the file exists."""
        return self.path.exists()

    def save(self) -> None:
        """Write the file under another name, then rename it, so that readers never see a partial file."""
        with self._lock:
            self._created = self._created or _now()
            text = file_text(self.all(), self._created)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)

    def load(self) -> None:
        """Replace the bookmarks by those of the file; without a file there are none. A damaged file changes nothing."""
        with self._lock:
            if not self.path.exists():
                self._bookmarks = {}
                return
            created, bookmarks = read_file(self.path)
            self._created = created
            self._bookmarks = {(bookmark.topic, bookmark.partition): bookmark for bookmark in bookmarks}

    def _existing(self, topic: str, partition: str) -> Bookmark:
        if (topic, partition) not in self._bookmarks:
            raise UnknownName(f"no bookmark of topic {topic!r}, partition {partition!r}")
        return self._bookmarks[topic, partition]

    def __len__(self) -> int:
        return self.count()

    def __iter__(self) -> Iterator[Bookmark]:
        return iter(self.all())

    def __repr__(self) -> str:
        return f"Bookmarks({str(self.path)!r}, {self.count()} bookmarks)"


def file_text(bookmarks: list[Bookmark], created: dt.datetime) -> str:
    """The file's content."""
    head = {"version": VERSION, "created_at": iso(created), "updated_at": iso(_now())}
    content = {**head, "bookmarks": [bookmark.to_dict() for bookmark in bookmarks]}
    return json.dumps(content, indent=2, ensure_ascii=False)


def read_file(path: Path) -> tuple[dt.datetime | None, list[Bookmark]]:
    """When it was created, and its bookmarks."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries, created = content["bookmarks"], content.get("created_at")
        bookmarks = [Bookmark.from_dict(entry) for entry in entries or ()]
        return (None if created is None else parse_timestamp(created)), bookmarks
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{path}: {error.message}", hint=error.hint) from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} is not a bookmark file ({type(error).__name__}: {error})",
            hint='it begins with {"version": "1.0", … "bookmarks": […]}',
        ) from None


def parse_timestamp(text: Json) -> dt.datetime:
    """From ISO 8601 with a zone; a finer fraction than microseconds is cut off."""
    try:
        timestamp = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InputError(f"{_short(text)} is not a timestamp", hint="write 2026-03-02T08:00:00Z") from None
    if timestamp.tzinfo is None:
        raise InputError(f"{text} has no time zone", hint="write 2026-03-02T08:00:00Z")
    return timestamp


def iso(at: dt.datetime) -> str:
    """In UTC, with a Z."""
    return at.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"  # noqa: PLR2004 - a line
