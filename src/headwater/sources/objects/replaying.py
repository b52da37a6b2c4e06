"""Rejects tried again: rows from the bytes that were kept of them, whole objects from the container, as they are now.

Rows of Parquet and Avro cannot be kept as bytes; their object is read again. Where it was changed since, a later window
brings, or has brought, all its rows: they are left out. What still cannot be kept is set aside as the reject that it was.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headwater.config.objects_source import CsvSettings
from headwater.model.rejects import Reject, SetAside
from headwater.model.rows import Rows
from headwater.sources.objects.container import Container, ObjectChanged, ObjectGone, ObjectVersion
from headwater.sources.objects.decoding import Reading
from headwater.sources.objects.failures import ObjectFailed, refuse
from headwater.sources.objects.formats.decoded import Decoded, joined
from headwater.sources.objects.formats.json import JsonObjects
from headwater.sources.objects.formats.opening import open_decoder, schema_for_decoding
from headwater.sources.objects.listed import Listed
from headwater.sources.objects.metadata import with_metadata
from headwater.sources.objects.pieces import read_piece
from headwater.sources.objects.reading import change_rows
from headwater.sources.objects.splits import ObjectsReader
from headwater.sources.split_rows import ArrowRows


def replay(rejects: Sequence[Reject], reading: Reading, container: Container) -> Sequence[Rows]:
    """The rows of the rejects of one stream; none where there are no rejects."""
    if not rejects:
        return []
    splits = (ReplaySplit(tuple(rejects), reading, container),)
    part_column = dict(reading.metadata).get("url", "")
    if reading.events is None:
        return [ArrowRows(reading.stream, reading.schema, (), (), splits, part_column)]
    return [change_rows(reading, reading.events, splits, part_column)]


@dataclass(frozen=True)
class ReplaySplit:
    """Rejects of one stream."""

    rejects: tuple[Reject, ...] = field(repr=False)
    reading: Reading = field(repr=False)
    container: Container = field(repr=False)

    @property
    def rows(self) -> int | None:
        """Nobody knows how many rows an object has."""
        return None if any(_is_whole(reject) for reject in self.rejects) else len(self.rejects)

    def read(self) -> Iterator[pa.RecordBatch]:
        return self.read_setting_aside(refuse)

    def read_setting_aside(self, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        for reject in self.rejects:
            yield from self._object(reject, set_aside) if _is_whole(reject) else self._row(reject, set_aside)

    def _object(self, reject: Reject, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        version = self.container.look(str(reject.more["key"]))
        if version is None:
            set_aside(_again(reject, "it is no longer there"))
            return

        def told(found: Reject) -> None:
            set_aside(_again(reject, found.reason) if found.part else found)

        yield from ObjectsReader(self.reading, self.container, told).whole([Listed(version)])

    def _row(self, reject: Reject, set_aside: SetAside) -> Iterator[pa.RecordBatch]:
        version = ObjectVersion(*(reject.more[name] for name in ("key", "etag", "size", "modified")))
        try:
            made = self._decoded(reject, version)
        except ObjectChanged:
            return
        except ObjectGone as gone:
            made = Decoded(failed={0: ObjectFailed(f"its object is gone ({gone})")})
        for reason in [*(bad.reason for bad in made.bad), *(failed.reason for failed in made.failed.values())]:
            set_aside(_again(reject, reason))
        for part in made.parts:
            if part.rows.num_rows:
                yield with_metadata(self.reading, self.container, [Listed(version)], part)

    def _decoded(self, reject: Reject, version: ObjectVersion) -> Decoded:
        """Raises ObjectGone, ObjectChanged, where bytes alone do not do."""
        if self.reading.format in ("json", "csv", "text", "debezium"):
            made, number = self._from_bytes(reject), np.array([int(reject.place["row"])])
            made.parts = [replace(part, numbers=number[: part.rows.num_rows]) for part in made.parts]
            return made
        if "row_group" in reject.more:
            group = int(reject.more["row_group"])
            return joined(read_piece(self.container, Listed(version, piece=(group, group + 1)), self.reading))
        self.container.fetch_range(version, 0, 1)
        return Decoded(failed={0: ObjectFailed(reject.reason)})  # the file itself says the type: nothing can mend it

    def _from_bytes(self, reject: Reject) -> Decoded:
        if self.reading.format == "json":
            return JsonObjects(schema_for_decoding(self.reading), "document").element(reject.payload)
        if self.reading.events is not None:
            from headwater.sources.debezium.objects import EventObjects  # noqa: PLC0415 - other formats need none of it

            return EventObjects(self.reading.events, "lines").element(reject.payload)
        if self.reading.format == "csv":
            headed = replace(self.reading, csv=self.reading.csv.model_copy(update={"header": True}))
            return open_decoder(headed).decode([_with_header(reject, self.reading.csv)])
        return open_decoder(self.reading).decode([reject.payload])


def _is_whole(reject: Reject) -> bool:
    return "row" not in reject.place


def _again(reject: Reject, reason: str) -> Reject:
    """The same one, by its place and its payload, with today's reason."""
    return replace(reject, reason=reason, part="", again=False)


def _with_header(reject: Reject, settings: CsvSettings) -> bytes:
    out = io.StringIO()
    writer = csv.writer(
        out,
        delimiter=settings.delimiter,
        quotechar=settings.quote,
        escapechar=settings.escape,
        quoting=csv.QUOTE_ALL,
        lineterminator="\n",
    )
    writer.writerow(reject.more["columns"])
    return out.getvalue().encode() + reject.payload
