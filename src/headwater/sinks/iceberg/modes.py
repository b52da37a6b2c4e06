"""One strategy per `mode` of the sink, chosen once when the sink opens: its key, its files, its update of the table."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from headwater.config.sinks.iceberg import IcebergSinkSettings
from headwater.model.errors import AmbiguousKey, InputError, TransformFailed, UnknownName
from headwater.model.protocols.sink import Attempt
from headwater.model.rows import Changes, Rows
from headwater.sinks.iceberg.catalog.table import LakeTable
from headwater.sinks.iceberg.cdc.change_files import (
    ChangeFiles,
    CurrentStateLayout,
    HistoryLayout,
    TableLayout,
)
from headwater.sinks.iceberg.cdc.current_state import ChangesRequest, CurrentState
from headwater.sinks.iceberg.cdc.history import History
from headwater.sinks.iceberg.landing_files import LandingFiles
from headwater.sinks.iceberg.merge.replace_object import (
    ObjectReplacement,
    ReplaceRequest,
    earlier_objects,
    has_no_rows,
    object_column,
)
from headwater.sinks.iceberg.merge.table_update import Append, MergeRequest, Replace, TableUpdate, Target, Upsert
from headwater.sinks.rejects import SinkRejects


@dataclass(frozen=True)
class PreparedRows:
    """Rows as a mode lands them."""

    rows: Rows
    columns: pa.Schema  # of the table that is made of them
    key: tuple[str, ...]
    layout: TableLayout | None = None  # of changes that become rows of the table
    required: tuple[str, ...] = ()  # columns whose NULLs are refused
    object_column: str = ""  # that names the object of a row
    partition_by: Sequence[str] = ()  # of a new table

    @property
    def defines_columns(self) -> bool:
        """False for objects that are gone: they do not say what the columns are."""
        return not (self.object_column and has_no_rows(self.rows))


@dataclass(frozen=True)
class WrittenLanding:
    """A landing whose files are written, and that is to be published."""

    prepared: PreparedRows
    target: Target
    attempt: Attempt
    rejects: SinkRejects


class Mode(ABC):
    """What a mode decides. One object per sink; it keeps nothing between landings."""

    lands_empty: ClassVar[bool] = False
    """A window without rows changes the table."""
    has_strategies: ClassVar[bool] = False
    """`choose_upsert` decides how rows are merged."""

    def __init__(self, settings: IcebergSinkSettings) -> None:
        self._settings = settings
        self.name = settings.mode

    def prepare(self, rows: Rows, subject: str) -> PreparedRows:  # noqa: ARG002 - subclasses name it in errors
        """Refuse what this mode cannot land (G12). `subject` is the stream and its table, for errors."""
        key = tuple(column for column in self._settings.key or rows.key if column in rows.schema.names)
        return PreparedRows(rows, rows.schema, key, partition_by=self._settings.partition_by)

    def open_files(self, prepared: PreparedRows, table: LakeTable, landing: str, run: str) -> LandingFiles:  # noqa: ARG002
        """The files of one try at a landing."""
        return LandingFiles(table, landing, run)

    def null_key_error(self, stream: str, counts: str) -> AmbiguousKey:
        return AmbiguousKey(
            f"{stream}: rows without a key cannot be merged: {counts}",
            hint="choose a key that is never NULL (key:), exclude such rows (where:), or use mode: append",
        )

    @abstractmethod
    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        """How the written files come into the table."""


class AppendMode(Mode):
    """Adds every row."""

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        return Append(landing.target)


class ReplaceMode(Mode):
    """The window is the table."""

    lands_empty = True

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        return Replace(landing.target)


class ReplaceObjectMode(Mode):
    """An object that is read again replaces the rows it brought before."""

    lands_empty = True

    def prepare(self, rows: Rows, subject: str) -> PreparedRows:
        column = object_column(rows, subject)
        return replace(super().prepare(rows, subject), object_column=column, required=(column,))

    def null_key_error(self, stream: str, counts: str) -> AmbiguousKey:
        return AmbiguousKey(
            f"{stream}: rows that name no object can never be replaced: {counts}",
            hint="keep the column unchanged in the transform, or use mode: append",
        )

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        rows, column = landing.prepared.rows, landing.prepared.object_column
        earlier = earlier_objects(rows, landing.attempt)
        return ObjectReplacement(landing.target, ReplaceRequest(rows.stream, column, earlier, self._settings.upsert))


class _KeyedMode(Mode):
    """Rows of the table are replaced by key; changes become rows in the layout of the mode."""

    has_strategies = True

    @property
    @abstractmethod
    def _layout(self) -> TableLayout: ...

    def prepare(self, rows: Rows, subject: str) -> PreparedRows:
        key = tuple(self._settings.key or rows.key)
        check_key(key, rows.schema, subject)
        layout = self._layout if _changes_of(rows) else None
        columns = layout.schema(rows, key) if layout else rows.schema
        return PreparedRows(rows, columns, key, layout, required=key, partition_by=self._settings.partition_by)

    def open_files(self, prepared: PreparedRows, table: LakeTable, landing: str, run: str) -> LandingFiles:
        if prepared.layout:
            return ChangeFiles(table, landing, run, prepared.layout)
        return super().open_files(prepared, table, landing, run)

    def _changes_request(self, landing: WrittenLanding, files: ChangeFiles) -> ChangesRequest:
        rows, key = landing.prepared.rows, landing.prepared.key
        changes = rows.changes
        assert changes is not None  # noqa: S101 - so they were prepared
        is_copy, columns = changes.is_copy and key == rows.key, changes.table_columns
        return ChangesRequest(rows.stream, key, columns, files.layout, self._settings.upsert, landing.rejects, is_copy)


class MergeMode(_KeyedMode):
    """One row per key: of rows the newest read, of changes the current state."""

    @property
    def _layout(self) -> TableLayout:
        return CurrentStateLayout(marks_deletes=self._settings.deletes == "mark")

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        rows, key, target = landing.prepared.rows, landing.prepared.key, landing.target
        if isinstance(target.files, ChangeFiles):
            return CurrentState(target, target.files, self._changes_request(landing, target.files))
        unique = bool(rows.key) and set(rows.key) <= set(key)
        return Upsert(target, MergeRequest(rows.stream, key, tuple(rows.order), unique, self._settings.upsert))


class HistoryMode(_KeyedMode):
    """Every version of every row."""

    @property
    def _layout(self) -> TableLayout:
        return HistoryLayout()

    def prepare(self, rows: Rows, subject: str) -> PreparedRows:
        _require_changes(rows, "history", subject, "write mode: merge")
        return super().prepare(rows, subject)

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        target = landing.target
        assert isinstance(target.files, ChangeFiles)  # noqa: S101 - so they were opened
        return History(target, target.files, self._changes_request(landing, target.files))


class ChangesMode(Mode):
    """A log: every event once."""

    has_strategies = True

    def prepare(self, rows: Rows, subject: str) -> PreparedRows:
        changes = _require_changes(rows, "changes", subject, "write mode: append")
        if not changes.event_key:
            raise InputError(
                f"{subject}: no column identifies an event, so an event read again would be stored twice",
                hint="let the source add partition and offset (metadata:)",
            )
        by_day = [f"day({changes.arrival})"] if changes.arrival else []
        key, partition_by = changes.event_key, self._settings.partition_by or by_day
        return PreparedRows(rows, rows.schema, key, required=key, partition_by=partition_by)

    def table_update(self, landing: WrittenLanding) -> TableUpdate:
        rows, key = landing.prepared.rows, landing.prepared.key
        request = MergeRequest(rows.stream, key, tuple(rows.order), unique=True, upsert=self._settings.upsert)
        return Upsert(landing.target, request)


_MODES: dict[str, type[Mode]] = {
    "append": AppendMode,
    "merge": MergeMode,
    "replace": ReplaceMode,
    "replace_object": ReplaceObjectMode,
    "changes": ChangesMode,
    "history": HistoryMode,
}


def choose_mode(settings: IcebergSinkSettings) -> Mode:
    return _MODES[settings.mode](settings)


def check_key(key: Sequence[str], schema: pa.Schema, subject: str) -> None:
    """Refuse a key that cannot identify rows (G12)."""
    if not key:
        raise InputError(
            f"{subject}: mode merge needs a key, and the source has no primary key",
            hint="list the columns that identify a row: key: [id]",
        )
    for column in key:
        if column not in schema.names:
            near = difflib.get_close_matches(column, schema.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the rows have {', '.join(schema.names)}"
            raise UnknownName(f"{subject}: the rows have no column {column!r}, which key: names", hint=hint)
        column_type = schema.field(column).type
        if pa.types.is_floating(column_type) or pa.types.is_nested(column_type):
            raise InputError(
                f"{subject}: the key column {column!r} is {column_type}, which has no exact comparison",
                hint="choose key columns of integers, decimals, texts, dates, times or UUIDs",
            )


def _changes_of(rows: Rows) -> Changes | None:
    """None: rows are not changes. Refuse changes without their columns."""
    if rows.changes and rows.changes.dropped:
        dropped = ", ".join(rows.changes.dropped)
        raise TransformFailed(
            f"the transform of {rows.stream} drops or renames {dropped}, which change capture requires",
            hint="begin it with SELECT *, or select these columns too, as they are",
        )
    return rows.changes


def _require_changes(rows: Rows, mode: str, subject: str, otherwise: str) -> Changes:
    changes = _changes_of(rows)
    if changes is None:
        raise InputError(
            f"{subject}: mode {mode} needs the changes of change capture, and these rows are not changes",
            hint=f"read them with format: debezium or from source: postgres, or {otherwise}",
        )
    return changes
