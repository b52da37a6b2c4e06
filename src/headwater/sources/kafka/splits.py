"""Parts of a window that executors read: a range of one partition each, and rejects that are tried again."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa

from headwater.model.rejects import Reject, SetAside
from headwater.sources.kafka.consuming import OffsetRange, Reading, messages
from headwater.sources.kafka.decoding import Decodes, refuse

_SMALL = 50_000  # below this many messages another split costs more than it brings
_LARGE = 1_000_000
_PARTS_PER_CORE = 4  # so that the last ones to finish are short


@dataclass(frozen=True)
class KafkaSplit:
    """A range of one partition. Its rows are exactly the range's messages, whenever and however often it is read."""

    range: OffsetRange
    decoding: Decodes = field(repr=False)
    reading: Reading = field(repr=False)

    @property
    def rows(self) -> int:
        return self.range.end - self.range.begin

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.read_setting_aside(refuse)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        decoder = self.decoding.decoder()
        for found in messages(self.reading, self.range):
            batch = decoder.batch(found, set_aside)
            if batch is not None:
                yield batch


@dataclass(frozen=True)
class ReplaySplit:
    """Rejects of one topic, decoded once more from what was kept of them; the topic may have lost them since."""

    rejects: tuple[Reject, ...] = field(repr=False)
    decoding: Decodes = field(repr=False)

    @property
    def rows(self) -> int:
        return len(self.rejects)

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.read_setting_aside(refuse)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        decoder = self.decoding.decoder()
        for reject in self.rejects:
            batch = decoder.batch([_Kept(reject)], set_aside)
            if batch is not None:
                yield batch


class _Kept:
    """A reject as the message that it was."""

    def __init__(self, reject: Reject) -> None:
        self._reject = reject

    def topic(self) -> str:
        return str(self._reject.place["topic"])

    def partition(self) -> int:
        return int(self._reject.place["partition"])

    def offset(self) -> int:
        return int(self._reject.place["offset"])

    def timestamp(self) -> tuple[int, int]:
        moment = self._reject.more.get("timestamp")
        return (0, -1) if moment is None else (1, int(moment))

    def key(self) -> bytes | None:
        return _bytes(self._reject.more.get("key"))

    def value(self) -> bytes | None:
        return None if self._reject.more.get("tombstone") else self._reject.payload

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name, _bytes(value)) for name, value in self._reject.more.get("headers", [])]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def cut(ranges: Sequence[OffsetRange], cores: int, wanted: int | None) -> list[OffsetRange]:
    """The same offsets in parts that cores can share; as many as `wanted`, if that is said."""
    total = sum(each.end - each.begin for each in ranges)
    if wanted is None:
        size = min(max(-(-total // (cores * _PARTS_PER_CORE)), _SMALL), _LARGE)
    else:
        size = max(-(-total // wanted), 1)
    made = []
    for each in ranges:
        parts = max(-(-(each.end - each.begin) // size), 1)
        edges = [each.begin + (each.end - each.begin) * n // parts for n in range(parts + 1)]
        made += [OffsetRange(each.topic, each.partition, begin, end) for begin, end in pairwise(edges) if begin < end]
    return made
