"""One Iceberg table through Iceberg's Java API: its names, its state, its files, the commits to prepare."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.model.errors import InputError
from headwater.sinks.iceberg.catalog.jvm import java
from headwater.sinks.iceberg.data_files import Vector
from headwater.sinks.iceberg.partitioning import Bucket, PartitionColumn, buckets_of, partition_columns
from headwater.sinks.iceberg.schema import Evolution, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.sinks.iceberg.landing_files import WrittenFile


@dataclass(frozen=True)
class TableName:
    """A table in a catalog of the session."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace, self.name))

    @property
    def quoted(self) -> str:
        """The name in Spark SQL."""
        return ".".join(quote(part) for part in (self.catalog, *self.namespace, self.name))


def quote(identifier: str) -> str:
    """An identifier in Spark SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def table_for(template: str, stream: str) -> TableName:
    """The table of a stream. Characters of the stream that a name cannot contain become `_`."""
    schema, _, table = stream.rpartition(".")
    values = {"{stream}": table, "{table}": table, "{schema}": schema or "default"}
    parts = [re.sub(r"\{\w+\}", lambda m: _safe(values[m[0]]), part) for part in template.split(".")]
    return TableName(parts[0], tuple(parts[1:-1]), parts[-1])


def check_distinct(template: str, streams: Iterable[str]) -> None:
    """Refuse two streams that would land in one table (G12)."""
    owners: dict[TableName, str] = {}
    for stream in sorted(set(streams)):
        other = owners.setdefault(table_for(template, stream), stream)
        if other != stream:
            raise shared_table(table_for(template, stream), other, stream)


def shared_table(table: TableName, stream: str, other: str) -> InputError:
    return InputError(
        f"the streams {stream!r} and {other!r} would both land in {table}",
        hint="write {schema}_{table} in table: of the sink, so that each stream has its own table",
    )


def landing_id(pipeline: str, sink: str, stream: str, window: str) -> str:
    """The same for every try at one landing, and for no other: leftover files are found by it."""
    return _digest(pipeline, sink, stream, window)[:24]


def branch_prefix(pipeline: str, sink: str, stream: str) -> str:
    """The prefix of this pipeline's staging branches in a table."""
    return f"hw_{_digest(pipeline, sink, stream)[:12]}_"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def _safe(text: str) -> str:
    return re.sub(r"\W", "_", text) or "_"


MAIN = "main"
_PARALLEL_FOOTERS = 4
_FEW_MANIFESTS = 100  # Iceberg merges manifests from this number on


@dataclass(frozen=True)
class PlannedFile:
    """A data file of a snapshot, with its delete files."""

    location: str
    rows: int
    format: str
    deletes: Sequence[Mapping[str, Any]]
    java: Any  # the FileScanTask
    nulls: Mapping[int, int] = field(
        default_factory=dict
    )  # by a column's id, of the columns whose statistics were requested
    bounds: Mapping[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    size: int = 0  # in bytes
    buckets: tuple[Bucket, ...] = ()
    first_row_id: int | None = None  # None: the table's format has no row ids

    @classmethod
    def of(cls, task: Mapping[str, Any], java: Any) -> PlannedFile:
        """From Iceberg's JSON of a task, where bytes are hexadecimal."""
        file = task["data-file"]
        low, high = (_by_id(file.get(f"{end}-bounds")) for end in ("lower", "upper"))
        bounds = {n: (_bytes(low.get(n)), _bytes(high.get(n))) for n in {*low, *high}}
        deletes, nulls = list(task.get("delete-files") or ()), _by_id(file.get("null-value-counts"))
        return cls(
            file["file-path"],
            file["record-count"],
            file["file-format"].lower(),
            deletes,
            java,
            nulls,
            bounds,
            file["file-size-in-bytes"],
            buckets_of(task["spec"], file["partition"]),
            file.get("first-row-id"),
        )


@dataclass(frozen=True)
class DataFile:
    """A data file as Iceberg's value, with its partition spec."""

    java: Any
    spec: Any


class LakeTable:
    """A handle that is kept between landings; `refresh` reads the commits of other writers."""

    def __init__(self, spark: SparkSession, name: TableName, table: Any, branch: str = MAIN) -> None:
        self.name, self.java, self.branch = name, table, branch
        self.jvm = java(spark)
        self._iceberg = self.jvm.org.apache.iceberg
        self.operations = table.operations()

    def refresh(self) -> None:
        self.java.refresh()

    @property
    def metadata(self) -> Any:
        return self.operations.current()

    @property
    def head(self) -> int | None:
        snapshot = self.newest(self.metadata)
        return None if snapshot is None else int(snapshot.snapshotId())

    def newest(self, metadata: Any) -> Any:
        """The snapshot at the branch's head in this metadata; None: the table has none yet."""
        if self.branch == MAIN:
            return metadata.currentSnapshot()
        return metadata.snapshot(metadata.ref(self.branch).snapshotId())

    @property
    def format_version(self) -> int:
        return int(self.metadata.formatVersion())

    @property
    def rows(self) -> int:
        """Rows of the head's data files, deleted ones included."""
        snapshot = self.newest(self.metadata)
        return 0 if snapshot is None else int(snapshot.summary().get("total-records") or 1)

    def summary_of(self, branch: str) -> dict[str, str]:
        """The summary of a branch's head."""
        snapshot = self.metadata.snapshot(self.metadata.ref(branch).snapshotId())
        return dict(json.loads(self._iceberg.SnapshotParser.toJson(snapshot))["summary"])

    @property
    def schema(self) -> TableSchema:
        return TableSchema.from_json(self._iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def data_folder(self) -> str:
        configured = self.java.properties().get("write.data.path")
        return str(configured or f"{self.java.location().rstrip('/')}/data").rstrip("/")

    def partition(self, schema: TableSchema) -> tuple[PartitionColumn, ...]:
        spec = json.loads(self._iceberg.PartitionSpecParser.toJson(self.java.spec()))
        return partition_columns(spec, {column.id: column.name for column in schema.columns}, str(self.name))

    def evolve(self, evolution: Evolution) -> None:
        """Apply an evolution in one change of the schema."""
        update = self.java.updateSchema()
        for column in evolution.add:
            # Names with dots are accepted only with an explicit parent: none.
            update.addColumn(None, column.name, self._type(column.to_json()))
        for name, wider in evolution.widen:
            update.updateColumn(name, self._type({"id": 1, "name": name, "required": False, "type": wider}))
        if evolution.relax:
            self._drop_identifiers(update, evolution.relax)
        for name in evolution.relax:
            update.makeColumnOptional(name)
        update.commit()

    def _drop_identifiers(self, update: Any, relaxed: Sequence[str]) -> None:
        """Iceberg's identifier columns are never NULL: one that may be is no longer an identifier."""
        schema = self.schema
        names = [column.name for column in schema.columns if column.id in schema.identifiers]
        if set(names) & set(relaxed):
            # Some of the key's columns are not a key: none is kept.
            update.setIdentifierFields(self.jvm.java.util.ArrayList())

    def _type(self, field: Mapping[str, Any]) -> Any:
        text = json.dumps({"type": "struct", "schema-id": 0, "fields": [{**field, "id": 1 << 29}]})
        return self._iceberg.SchemaParser.fromJson(text).columns().get(0).type()

    def plan_files(self, bounds: Mapping[str, tuple[object, object]], stats_of: str = "") -> list[PlannedFile]:
        """The files of the head that may hold rows within the bounds, column by column; with a column's statistics."""
        scan = self._scan()
        if stats_of:
            scan = scan.includeColumnStats(self._names(stats_of))
        for column, (low, high) in bounds.items():
            for bound in self._between(column, low, high):
                scan = scan.filter(bound)
        return self._planned(scan)

    def plan_files_with(self, column: str, low: object, high: object) -> list[PlannedFile]:
        """The files of the head whose column may hold a value within the bounds, or NULL; with its statistics."""
        expressions = self._iceberg.expressions.Expressions
        at_least, at_most = self._between(column, low, high)
        within = getattr(expressions, "and")(at_least, at_most)
        scan = self._scan().filter(getattr(expressions, "or")(expressions.isNull(column), within))
        return self._planned(scan.includeColumnStats(self._names(column)))

    def _scan(self) -> Any:
        return self.java.newScan() if self.branch == MAIN else self.java.newScan().useRef(self.branch)

    def on_branch(self, update: Any) -> Any:
        """The update, for the handle's branch."""
        return update if self.branch == MAIN else update.toBranch(self.branch)

    def _names(self, column: str) -> Any:
        names = self.jvm.java.util.ArrayList()
        names.add(column)
        return names

    def _between(self, column: str, low: object, high: object) -> tuple[Any, Any]:
        expressions = self._iceberg.expressions.Expressions
        return expressions.greaterThanOrEqual(column, low), expressions.lessThanOrEqual(column, high)

    def _planned(self, scan: Any) -> list[PlannedFile]:
        planned, tasks = [], scan.planFiles()
        files = tasks.iterator()
        while files.hasNext():
            task = files.next()
            planned.append(PlannedFile.of(json.loads(self._iceberg.ScanTaskParser.toJson(task)), task))
        tasks.close()
        return planned

    def append(self, data_files: Sequence[Any]) -> Any:
        """The update that only adds files."""
        update = self.on_branch(self.java.newAppend())
        for file in data_files:
            update.appendFile(file)
        if self._has_few_manifests():
            # Iceberg polls its threads every 10 ms, three times; this executor runs in the calling thread.
            executors = self._iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
            update.scanManifestsWith(executors.newDirectExecutorService())
        return update

    def _has_few_manifests(self) -> bool:
        """True if an append merges none of them, which would be work for several threads."""
        newest = self.newest(self.metadata)
        return newest is None or len(newest.allManifests(self.java.io())) < _FEW_MANIFESTS

    def data_files(self, written: Sequence[WrittenFile], spec: Any) -> list[Any]:
        """Written files as Iceberg's values with their metrics."""
        # Every dot is a call to the JVM: what all files share is read once.
        io, config = self.java.io(), self._iceberg.MetricsConfig.forTable(self.java)
        util, parser, files = (
            self._iceberg.parquet.ParquetUtil,
            self._iceberg.ContentFileParser,
            self._iceberg.DataFiles,
        )
        mapper, spec_id = self._iceberg.util.JsonUtil.mapper(), int(spec.specId())

        def data_file(file: WrittenFile) -> Any:
            description = {
                "spec-id": spec_id,
                "content": "data",
                "file-path": file.location,
                "file-format": "parquet",
                "partition": list(file.partition),
                "file-size-in-bytes": file.size,
                "record-count": file.rows,
            }
            parsed = parser.fromJson(mapper.readTree(json.dumps(description)), spec)
            metrics = util.fileMetrics(io.newInputFile(file.location), config)
            return files.builder(spec).copy(parsed).withMetrics(metrics).build()

        if len(written) <= 1:
            return [data_file(file) for file in written]
        with ThreadPoolExecutor(min(_PARALLEL_FOOTERS, len(written))) as threads:  # each reads a file's footer
            return list(threads.map(data_file, written))

    def deletion_vector(self, vector: Vector, location: str, size: int, of: DataFile) -> Any:
        """A deletion vector as Iceberg's value."""
        builder = self._deletes(of, "puffin", location, size)
        builder = builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.length)
        return builder.withRecordCount(vector.rows).build()

    def position_deletes(self, rows: int, location: str, size: int, of: DataFile) -> Any:
        """A file of position deletes of one data file, for tables of format version 2."""
        return self._deletes(of, "parquet", location, size).withRecordCount(rows).build()

    def _deletes(self, of: DataFile, file_format: str, location: str, size: int) -> Any:
        builder = self._iceberg.FileMetadata.deleteFileBuilder(of.spec).ofPositionDeletes().withFormat(file_format)
        builder = builder.withPath(location).withFileSizeInBytes(size).withReferencedDataFile(of.java.location())
        return builder.withPartition(of.java.partition()) if of.spec.isPartitioned() else builder

    def defaults(self) -> frozenset[int]:
        """The ids of columns with a default value in files that were written before them."""
        fields = json.loads(self._iceberg.SchemaParser.toJson(self.java.schema()))["fields"]
        return frozenset(field["id"] for field in fields if field.get("initial-default") is not None)

    def metadata_json(self) -> dict[str, Any]:
        text = self._iceberg.TableMetadataParser.toJson(self.metadata)
        return dict(json.loads(text))


def _by_id(values: Mapping[str, Sequence[Any]] | None) -> dict[int, Any]:
    return dict(zip(values["keys"], values["values"], strict=True)) if values else {}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
