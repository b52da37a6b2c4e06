"""What could not be read of objects: whole objects, which are tried again, and rows of good ones (G8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.errors import HeadwaterError, RunError, ValueNotKept
from headwater.model.marks import Json
from headwater.model.rejects import Reject
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.listed import Listed

SHOWN = 1_000  # bytes of an object that its reject keeps


class ObjectFailed(Exception):
    """Why an object brings no row at all; `shown` is its beginning, where that is not its content's."""

    def __init__(self, reason: str, shown: bytes = b"") -> None:
        super().__init__(reason)
        self.reason, self.shown = reason, bytes(shown[:SHOWN])


class ObjectMoved(ObjectFailed):
    """It is gone, or no longer the one that was listed: no fault of its content."""


@dataclass(frozen=True)
class BadRow:
    """A row that has no place in the schema."""

    owner: int  # which of the objects that were decoded together
    number: int  # of the row in it, from 1
    reason: str
    payload: bytes
    more: Mapping[str, Json] = field(default_factory=dict)


def failure(reading: Reading, url: str, listed: Listed, failed: ObjectFailed, beginning: bytes = b"") -> Reject:
    """A whole object set aside. While it will be tried again, that is not kept as a reject."""
    return Reject(
        reading.stream,
        {"object": url, "etag": listed.version.etag},
        failed.reason,
        failed.shown or beginning,
        {**about(listed), "tries": listed.tries},
        part=listed.version.key,
        again=isinstance(failed, ObjectMoved) or listed.tries + 1 < reading.tries,
    )


def bad_row(stream: str, url: str, listed: Listed, row: BadRow) -> Reject:
    """One row of an object that is otherwise good."""
    place: dict[str, str | int] = {"object": url, "row": row.number}
    return Reject(stream, place, row.reason, row.payload, {**about(listed), **row.more})


def about(listed: Listed) -> dict[str, Json]:
    """What a replay needs to know of the object."""
    version = listed.version
    return {"key": version.key, "etag": version.etag, "size": version.size, "modified": version.modified}


def refuse(reject: Reject) -> None:
    """What a reader does with a reject where nobody keeps it."""
    raise _error(reject)


def _error(reject: Reject) -> HeadwaterError:
    url = reject.place["object"]
    if reject.part:
        return RunError(f"{url}: {reject.reason}", hint="correct the object, or set such objects aside (max_rejects)")
    where = ", ".join(f"{name} {value}" for name, value in reject.place.items() if name != "object")
    return ValueNotKept(
        f"{url}, {where}: {reject.reason}", hint="set such rows aside (max_rejects), or change the schema"
    )
