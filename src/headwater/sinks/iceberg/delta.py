"""One Iceberg update that adds a landing's files and takes rows away: marked as deleted, or left out of new files."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.sinks.iceberg.copying import Copies, Copying, nothing_copied
from headwater.sinks.iceberg.deletion_vectors import write_vectors
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.position_deletes import write_position_deletes
from headwater.sinks.iceberg.removing import Removal, bitmap
from headwater.sinks.iceberg.searching import Positions
from headwater.sinks.iceberg.stamp import Stamp
from headwater.sinks.iceberg.storage import prepare_folder
from headwater.sinks.iceberg.table import DataFile, LakeTable, PlannedFile
from headwater.sinks.iceberg.upsert import DELETION_VECTORS, Kind
from headwater.sinks.iceberg.writing import WrittenFile

if TYPE_CHECKING:
    from pyroaring import BitMap64


class Delta:
    """Made anew whenever the table's head moved; the landing's own files stay."""

    def __init__(self, table: LakeTable, files: LandingFiles, copying: Copying) -> None:
        self._table, self._files, self._copying = table, files, copying
        self.more_files: tuple[str, ...] = ()  # that the update refers to, beside those of the landing

    def update(
        self, kind: Kind, planned: Sequence[PlannedFile], removal: Removal, repeated: Mapping[str, Positions]
    ) -> Any | None:
        """None: there is nothing to do. `repeated` are rows of the landing's own files that nobody shall see."""
        own, self.more_files = self._own(), ()
        if not removal.rows and not repeated:
            return self._table.append([file.java for file in own.values()]) if own else None
        copies = self._copying.run(planned, removal) if kind == "copy-on-write" else nothing_copied()
        own |= self._copied(copies)
        update = self._table.here(self._table.java.newRowDelta())
        if self._table.head is not None:
            update.validateFromSnapshot(self._table.head)  # older deletion vectors are known, and replaced here
        for file in own.values():
            update.addRows(file.java)
        replaced = {*removal.files, *copies.replaced}
        gone = {location: rows for location, rows in removal.gone.items() if location not in replaced}
        changed = {file.location: file for file in planned if file.location in {*gone, *replaced}}
        for location, old in changed.items():
            _remove_deletes(update, old)
            if location in replaced:
                update.removeRows(old.java.file())
        hidden = {file.location: bitmap(np.arange(file.rows)) for file in copies.hidden}
        hidden |= {location: bitmap(rows) for location, rows in repeated.items()}
        known = own | {location: DataFile(old.java.file(), old.java.spec()) for location, old in changed.items()}
        self._mark_deleted(update, known, gone | hidden)
        return update

    def keep_unseen(self, branch: str, files: Sequence[WrittenFile], stamp: Stamp) -> None:
        """Add files to a branch of which no row is ever seen."""
        own = self._own()
        update = self._table.java.newRowDelta().toBranch(branch)
        for file in files:
            update.addRows(own[file.location].java)
        self._mark_deleted(update, own, {file.location: bitmap(np.arange(file.rows)) for file in files})
        for name, value in stamp.properties().items():
            update.set(name, value)
        update.commit()
        self.more_files = (*self.more_files, *(file.location for file in files))

    def _own(self) -> dict[str, DataFile]:
        files = zip(self._files.locations, self._files.data_files(), strict=True)
        return {location: DataFile(file, self._files.spec) for location, file in files}

    def _copied(self, copies: Copies) -> dict[str, DataFile]:
        written = (*copies.seen, *copies.hidden)
        self.more_files = tuple(file.location for file in written)
        if not written:
            return {}
        spec = self._table.java.spec()
        files = self._table.data_files(written, spec)
        return {one.location: DataFile(file, spec) for one, file in zip(written, files, strict=True)}

    def _mark_deleted(self, update: Any, known: Mapping[str, DataFile], gone: Mapping[str, BitMap64]) -> None:
        """One vector per file, all in one Puffin file; in tables that have no vectors, a file of positions per file."""
        if not gone:
            return
        prepare_folder(self._files.folder)  # a landing that only removes has written nothing yet
        if self._table.format_version >= DELETION_VECTORS:
            target = self._new_file("puffin")
            vectors, size = write_vectors(target, gone)
            for vector in vectors:
                update.addDeletes(self._table.deletion_vector(vector, target, size, known[vector.data_file]))
            return
        for location, rows in gone.items():
            target = self._new_file("parquet")
            size = write_position_deletes(target, location, rows)
            update.addDeletes(self._table.position_deletes(len(rows), target, size, known[location]))

    def _new_file(self, ending: str) -> str:
        target = f"{self._files.folder}/{self._files.prefix}-{uuid.uuid4().hex}.{ending}"
        self.more_files = (*self.more_files, target)
        return target


def _remove_deletes(update: Any, old: PlannedFile) -> None:
    """Those of this file alone. Older ones of several files stay: they say nothing that the new ones do not."""
    for place, delete in enumerate(old.deletes):
        if delete.get("referenced-data-file") == old.location:
            update.removeDeletes(old.java.deletes().get(place))
