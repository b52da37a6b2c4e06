"""Lines → files on this disk, cut where the window alone says, each to be put under its name when all are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import pyarrow as pa

from headwater.model.marks import OffsetsMark
from headwater.model.window import Window

_DIGITS = 10  # of an offset in a name, as Confluent's sink pads it


@dataclass(frozen=True)
class MessageFile:
    """One file, still where nobody reads it."""

    name: str  # below the sink's path
    content: Path
    rows: int


@dataclass(frozen=True)
class Grid:
    """Which file an offset belongs to. By the window only: every attempt at it, on any machine, cuts alike (G2)."""

    begins: Mapping[int, int]  # of the window, by partition
    offsets: int  # per file

    @classmethod
    def of(cls, window: Window, topic: str, offsets: int) -> Grid:
        if window.part or not isinstance(window.start, OffsetsMark):  # a replay has messages from before its start
            return cls({}, offsets)
        return cls(window.start.topics.get(topic, {}), offsets)

    def place(self, partition: int, offset: int) -> tuple[int, int]:
        """The partition, and the first offset of the file that holds this one."""
        begin = self.begins.get(partition, 0)
        return partition, begin + (offset - begin) // self.offsets * self.offsets


class Staging:
    """Takes lines in the order of partition and offset, as splits come."""

    def __init__(self, folder: Path, topic: str, grid: Grid, suffix: str = "") -> None:
        self._folder, self._topic, self._grid, self._suffix = folder, topic, grid, suffix
        self._rows: dict[tuple[int, int], int] = {}
        self._open: tuple[tuple[int, int], IO[bytes]] | None = None

    def add(self, batch: pa.RecordBatch, lines: Sequence[bytes | None]) -> None:
        partitions, offsets = batch.column("kafka_partition").to_pylist(), batch.column("kafka_offset").to_pylist()
        places = list(map(self._grid.place, partitions, offsets))
        edges = [0, *(n for n in range(1, len(places)) if places[n] != places[n - 1]), len(places)]
        for begin, end in pairwise(edges):
            present = [line for line in lines[begin:end] if line is not None]
            if present:
                self._file(places[begin]).write(b"\n".join(present) + b"\n")
                self._rows[places[begin]] += len(present)

    def finished(self) -> list[MessageFile]:
        self._close()
        return [
            MessageFile(name_of(self._topic, *place, self._suffix), self._content(place), rows)
            for place, rows in self._rows.items()
        ]

    def _file(self, place: tuple[int, int]) -> IO[bytes]:
        if self._open is None or self._open[0] != place:
            self._close()
            # A reader may come back to a partition: then the file goes on.
            self._open = place, self._content(place).open("ab")
            self._rows.setdefault(place, 0)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _content(self, place: tuple[int, int]) -> Path:
        return self._folder / f"{place[0]}-{place[1]}"


def name_of(topic: str, partition: int, offset: int, suffix: str = "") -> str:
    """As Confluent's sink names its objects: `orders/partition=0/orders+0+0000000042.json`."""
    return f"{topic}/partition={partition}/{topic}+{partition}+{offset:0{_DIGITS}d}{suffix}.json"
