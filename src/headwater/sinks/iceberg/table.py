"""One Iceberg table through Iceberg's own Java API: reading its state, planning its files, preparing commits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.sinks.iceberg.buckets import Bucket, buckets_of
from headwater.sinks.iceberg.deletion_vectors import Vector
from headwater.sinks.iceberg.evolution import Evolution
from headwater.sinks.iceberg.java_names import java
from headwater.sinks.iceberg.naming import TableName
from headwater.sinks.iceberg.partitioning import PartitionColumn, partition_columns
from headwater.sinks.iceberg.types import TableSchema
from headwater.sinks.iceberg.writing import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


MAIN = "main"
_FOOTERS_AT_ONCE = 4
_FEW_MANIFESTS = 100  # as many as Iceberg lets grow before it merges them


@dataclass(frozen=True)
class PlannedFile:
    """A data file of a snapshot, with what has been deleted from it."""

    location: str
    rows: int
    format: str
    deletes: Sequence[Mapping[str, Any]]
    java: Any  # the FileScanTask
    nulls: Mapping[int, int] = field(default_factory=dict)  # by a column's id, where this is known and was asked for
    bounds: Mapping[int, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    size: int = 0  # in bytes
    buckets: tuple[Bucket, ...] = ()
    first_row: int | None = None  # the id of its first row; None: the table has no such ids

    @classmethod
    def of(cls, task: Mapping[str, Any], java: Any) -> PlannedFile:
        """From Iceberg's JSON of a task, which spells bytes in hexadecimal."""
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
    """A data file as Iceberg's value, with the partition spec that it was written by."""

    java: Any
    spec: Any


class LakeTable:
    """A handle that is kept between landings; `refresh` looks for what others did."""

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
        """The snapshot at the head of our branch, as this metadata has it; None: there is none yet."""
        if self.branch == MAIN:
            return metadata.currentSnapshot()
        return metadata.snapshot(metadata.ref(self.branch).snapshotId())

    @property
    def format_version(self) -> int:
        return int(self.metadata.formatVersion())

    @property
    def rows(self) -> int:
        """Rows of the head's data files, those deleted since included."""
        snapshot = self.newest(self.metadata)
        return 0 if snapshot is None else int(snapshot.summary().get("total-records") or 1)

    def summary_of(self, branch: str) -> dict[str, str]:
        """What the head of a branch says of itself."""
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
        """Carry out what `plan_evolution` decided, in one change of the schema."""
        update = self.java.updateSchema()
        for column in evolution.add:
            # Names with dots are only taken with the parent said: none.
            update.addColumn(None, column.name, self._type(column.to_json()))
        for name, kind in evolution.widen:
            made = self._type({"id": 1, "name": name, "required": False, "type": kind})
            update.updateColumn(name, made)
        if evolution.relax:
            self._keep_identifiers(update, evolution.relax)
        for name in evolution.relax:
            update.makeColumnOptional(name)
        update.commit()

    def _keep_identifiers(self, update: Any, relaxed: Sequence[str]) -> None:
        """Iceberg's identifier columns are never NULL; a column that may be is none any more."""
        schema = self.schema
        names = [column.name for column in schema.columns if column.id in schema.identifiers]
        if set(names) & set(relaxed):
            # Identifiers that cannot all be kept are no key: none is left.
            update.setIdentifierFields(self.jvm.java.util.ArrayList())

    def _type(self, field: Mapping[str, Any]) -> Any:
        text = json.dumps({"type": "struct", "schema-id": 0, "fields": [{**field, "id": 1 << 29}]})
        return self._iceberg.SchemaParser.fromJson(text).columns().get(0).type()

    def plan_files(self, bounds: Mapping[str, tuple[object, object]], known_of: str = "") -> list[PlannedFile]:
        """The files of the head that may hold rows within the bounds, column by column; with what is known of a column."""
        scan = self._scan()
        if known_of:
            scan = scan.includeColumnStats(self._names(known_of))
        for column, (low, high) in bounds.items():
            for bound in self._between(column, low, high):
                scan = scan.filter(bound)
        return self._planned(scan)

    def plan_files_with(self, column: str, low: object, high: object) -> list[PlannedFile]:
        """The files of the head whose column may hold a value within the bounds, or NULL; with what is known of it."""
        expressions = self._iceberg.expressions.Expressions
        at_least, at_most = self._between(column, low, high)
        within = getattr(expressions, "and")(at_least, at_most)
        scan = self._scan().filter(getattr(expressions, "or")(expressions.isNull(column), within))
        return self._planned(scan.includeColumnStats(self._names(column)))

    def _scan(self) -> Any:
        return self.java.newScan() if self.branch == MAIN else self.java.newScan().useRef(self.branch)

    def here(self, update: Any) -> Any:
        """The update, made for our branch."""
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
        """The update that adds files, and nothing else."""
        update = self.here(self.java.newAppend())
        for file in data_files:
            update.appendFile(file)
        if self._has_few_manifests():
            # Iceberg looks every 10 ms whether its threads are done, three times; this one is done when it was asked.
            executors = self._iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
            update.scanManifestsWith(executors.newDirectExecutorService())
        return update

    def _has_few_manifests(self) -> bool:
        """So few that none are merged by an append, which would be work for several threads."""
        newest = self.newest(self.metadata)
        return newest is None or len(newest.allManifests(self.java.io())) < _FEW_MANIFESTS

    def data_files(self, written: Sequence[WrittenFile], spec: Any) -> list[Any]:
        """Files that were written, as Iceberg's values with their metrics."""
        # Every dot is a question to the JVM: what all files share is asked for once.
        io, config = self.java.io(), self._iceberg.MetricsConfig.forTable(self.java)
        util, parser, files = (
            self._iceberg.parquet.ParquetUtil,
            self._iceberg.ContentFileParser,
            self._iceberg.DataFiles,
        )
        mapper, spec_id = self._iceberg.util.JsonUtil.mapper(), int(spec.specId())

        def made(one: WrittenFile) -> Any:
            described = {
                "spec-id": spec_id,
                "content": "data",
                "file-path": one.location,
                "file-format": "parquet",
                "partition": list(one.partition),
                "file-size-in-bytes": one.size,
                "record-count": one.rows,
            }
            file = parser.fromJson(mapper.readTree(json.dumps(described)), spec)
            metrics = util.fileMetrics(io.newInputFile(one.location), config)
            return files.builder(spec).copy(file).withMetrics(metrics).build()

        if len(written) <= 1:
            return [made(one) for one in written]
        with ThreadPoolExecutor(min(_FOOTERS_AT_ONCE, len(written))) as threads:  # each is a read of a file's footer
            return list(threads.map(made, written))

    def deletion_vector(self, vector: Vector, location: str, size: int, of: DataFile) -> Any:
        """A deletion vector as Iceberg's value."""
        builder = self._deletes(of, "puffin", location, size)
        builder = builder.withContentOffset(vector.offset).withContentSizeInBytes(vector.length)
        return builder.withRecordCount(vector.rows).build()

    def position_deletes(self, rows: int, location: str, size: int, of: DataFile) -> Any:
        """A file of position deletes of one data file, for tables of format version 2."""
        return self._deletes(of, "parquet", location, size).withRecordCount(rows).build()

    def _deletes(self, of: DataFile, kind: str, location: str, size: int) -> Any:
        builder = self._iceberg.FileMetadata.deleteFileBuilder(of.spec).ofPositionDeletes().withFormat(kind)
        builder = builder.withPath(location).withFileSizeInBytes(size).withReferencedDataFile(of.java.location())
        return builder.withPartition(of.java.partition()) if of.spec.isPartitioned() else builder

    def defaults(self) -> frozenset[int]:
        """The ids of columns that have a value in files that were written before them."""
        fields = json.loads(self._iceberg.SchemaParser.toJson(self.java.schema()))["fields"]
        return frozenset(field["id"] for field in fields if field.get("initial-default") is not None)

    def metadata_json(self) -> dict[str, Any]:
        text = self._iceberg.TableMetadataParser.toJson(self.metadata)
        return dict(json.loads(text))


def _by_id(values: Mapping[str, Sequence[Any]] | None) -> dict[int, Any]:
    return dict(zip(values["keys"], values["values"], strict=True)) if values else {}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
