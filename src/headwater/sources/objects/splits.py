"""Parts of a window that executors read: many small objects, one object, or a piece of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.model.errors import SourceUnreachable
from headwater.model.rejects import SetAside
from headwater.sources.objects.container import Container, ObjectChanged, ObjectGone, ObjectRefused
from headwater.sources.objects.contents import Content
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.failures import SHOWN, ObjectFailed, bad_row, failure, refuse
from headwater.sources.objects.fetching import contents
from headwater.sources.objects.formats.decoded import Decoded, Decoder, gathered
from headwater.sources.objects.formats.opening import open_decoder
from headwater.sources.objects.holding import Held
from headwater.sources.objects.listed import Listed, unpack
from headwater.sources.objects.metadata import with_metadata
from headwater.sources.objects.pieces import read_piece

_TOGETHER = 4 << 20  # bytes that are decoded at once
_LARGE = 32 << 20  # bytes of one object that is decoded piece by piece


@dataclass(frozen=True)
class ObjectsSplit:
    """Its rows are exactly those of its objects, whenever and however often it is read, while they stay as listed."""

    objects: bytes = field(repr=False)  # packed, see `listed`
    count: int
    size: int  # bytes, as they are stored
    rows: int | None
    reading: Reading = field(repr=False)
    container: Container = field(repr=False)

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.read_setting_aside(refuse)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        objects = list(unpack(self.objects))
        reader = ObjectsReader(self.reading, self.container, set_aside)
        if objects and objects[0].piece is not None:
            return reader.piece(objects[0])
        return reader.whole(objects)


class ObjectsReader:
    """Reads objects for one task."""

    def __init__(self, reading: Reading, container: Container, set_aside: SetAside) -> None:
        self._reading, self._container, self._set_aside = reading, container, set_aside
        self._decoder: Decoder = open_decoder(reading)

    def whole(self, objects: Sequence[Listed]) -> Iterator[pa.RecordBatch]:
        """Every one completely decoded before its first row is given."""
        together: list[Listed] = []
        held: list[Content] = []
        size = 0
        for listed, content in contents(self._container, objects, self._reading.compression):
            if isinstance(content, ObjectFailed):
                self._fail(listed, content)
            elif len(content) > _LARGE:
                yield from self._large(listed, content)
            else:
                together.append(listed)
                held.append(content)
                size += len(content)
                if size >= _TOGETHER:
                    yield from self._given(together, self._decoder.decode(held), held)
                    together, held, size = [], [], 0
        if together:
            yield from self._given(together, self._decoder.decode(held), held)

    def piece(self, listed: Listed) -> Iterator[pa.RecordBatch]:
        """A part of an object whose other parts are other tasks' work: it cannot fail by itself any more.

        Planning has seen the object as it was listed. If it changes while tasks are at it, all of them stop; the next
        try finds it changed before it begins, and goes on without it.
        """
        url = self._container.url(listed.version.key)
        try:
            for made in read_piece(self._container, listed, self._reading):
                yield from self._given([listed], made, [b""])
        except (ObjectGone, ObjectChanged, ObjectRefused, ObjectFailed) as error:
            raise SourceUnreachable(
                f"{url} changed while it was being read: {error}", hint="run again: it is left for a later window then"
            ) from error

    def _large(self, listed: Listed, content: Content) -> Iterator[pa.RecordBatch]:
        bad, held = Decoded(), Held(self._reading.schema)
        try:
            for made in self._decoder.pieces(content):
                bad.bad += made.bad
                for part in made.parts:
                    held.add(with_metadata(self._reading, self._container, [listed], part))
        except ObjectFailed as failed:
            self._fail(listed, failed, content)
            return
        yield from self._given([listed], bad, [content])
        yield from held.batches()

    def _given(self, objects: Sequence[Listed], made: Decoded, contents: Sequence[Content]) -> Iterator[pa.RecordBatch]:
        for owner, failed in made.failed.items():
            self._fail(objects[owner], failed, contents[owner])
        for bad in made.bad:
            listed = objects[bad.owner]
            self._set_aside(bad_row(self._reading.stream, self._container.url(listed.version.key), listed, bad))
        for part in gathered(made.parts):
            yield with_metadata(self._reading, self._container, objects, part)

    def _fail(self, listed: Listed, failed: ObjectFailed, content: Content = b"") -> None:
        self._set_aside(
            failure(self._reading, self._container.url(listed.version.key), listed, failed, content[:SHOWN])
        )
