"""Every sink in every mode keeps the contract of sinks."""

from __future__ import annotations

import csv
import io
import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.config.pipeline import SinkSettings
from headwater.config.project import S3Settings
from headwater.model.position.marks import OffsetsMark
from headwater.model.position.window import Window
from headwater.model.protocols.sink import Sink
from headwater.model.rows import Objects, Rows
from headwater.sinks.open import SinkContext, open_sink
from headwater.testing import SinkContract, SinkTarget
from headwater.testing.change_log import Event, changes
from headwater.testing.memory_rows import tables_of, with_tables
from headwater.testing.sink_contract import STREAMS, WINDOW_ROWS, Row, note_rows
from tests.sinks.kafka.topic_reader import read_topic
from tests.support.stack import KafkaForTests, S3ForTests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = "127.0.0.1:9"  # the port of the discard service, where nothing listens
SECRET = "hush-hush-4711"  # noqa: S105 - shown nowhere
ODD_NANOSECOND, EVEN_MICROSECOND = 1, 1_000


class Target(SinkTarget):
    """A target whose sink is opened by its settings, as a pipeline opens it."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder, self.settings = folder, settings
        self.out, self.s3 = io.StringIO(), S3Settings()

    def open(self) -> Sink:
        return self.opened(self.settings)

    def opened(self, settings: dict[str, object]) -> Sink:
        return open_sink(SinkSettings.model_validate(settings), 1, SinkContext(self.folder, self.out, self.s3))


class IcebergTarget(Target):
    """A namespace of its own, read by Spark."""

    def __init__(self, spark: SparkSession, namespace: str, **settings: object) -> None:
        super().__init__(Path(), iceberg={"table": f"{namespace}.{{stream}}", **settings})
        self._spark, self._namespace = spark, namespace

    def spark(self) -> SparkSession:
        return self._spark

    def read(self, stream: str) -> list[Row]:
        table = f"{self._namespace}.{stream.rpartition('.')[2]}"
        if not self._spark.catalog.tableExists(table):
            return []
        return [(row.id, row.note) for row in self._spark.sql(f"SELECT id, note FROM {table}").collect()]

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        """Iceberg's instants have microseconds."""
        moments = [EVEN_MICROSECOND] * len(content) + [ODD_NANOSECOND]
        return note_rows(stream, one_more(content), at=(pa.timestamp("ns"), moments))


class ReplaceTarget(IcebergTarget):
    """The table is the last window."""

    def content_after(self, windows: Sequence[Sequence[Row]]) -> list[Row]:
        return list(windows[-1])


class ObjectsTarget(IcebergTarget):
    """Rows of objects, of which every window brings others."""

    def rows(self, stream: str, content: Sequence[Row]) -> Rows:
        return self._of_objects(note_rows(stream, content, object_url=(pa.string(), urls(content))))

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        moments = [EVEN_MICROSECOND] * len(content) + [ODD_NANOSECOND]
        more = {"at": (pa.timestamp("ns"), moments), "object_url": (pa.string(), urls(one_more(content)))}
        return self._of_objects(note_rows(stream, one_more(content), **more))

    def _of_objects(self, rows: Rows) -> Rows:
        return replace(rows, objects=Objects("object_url", part_prefix="s3://bucket/"))


class ChangesTarget(IcebergTarget):
    """Changes: every row was inserted."""

    def rows(self, stream: str, content: Sequence[Row]) -> Rows:
        events = [(0, n, Event("c", n * 10**19, n, note, "body")) for n, note in content]
        return changes(events, splits=2, stream=stream)

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        rows = self.rows(stream, one_more(content))
        moments = itertools.chain([EVEN_MICROSECOND] * len(content), [ODD_NANOSECOND])
        tables = tuple(
            table.add_column(3, "at", pa.array(list(itertools.islice(moments, table.num_rows)), pa.timestamp("ns")))
            for table in tables_of(rows)
        )
        wider = replace(rows.changes, table_columns=(*rows.changes.table_columns, "at"))
        return replace(with_tables(rows, tables), changes=wider)


@pytest.mark.spark
class IcebergContract(SinkContract):
    """One class per mode."""

    mode = "append"
    target_class: type[IcebergTarget] = IcebergTarget

    @pytest.fixture
    def target(self, spark: SparkSession, namespace: str) -> SinkTarget:
        return self.target_class(spark, namespace, mode=self.mode)


class TestIcebergAppend(IcebergContract):
    mode = "append"


class TestIcebergMerge(IcebergContract):
    mode = "merge"


class TestIcebergReplace(IcebergContract):
    mode, target_class = "replace", ReplaceTarget


class TestIcebergReplaceObject(IcebergContract):
    mode, target_class = "replace_object", ObjectsTarget


class TestIcebergMergeOfChanges(IcebergContract):
    mode, target_class = "merge", ChangesTarget


class TestIcebergChanges(IcebergContract):
    mode, target_class = "changes", ChangesTarget


class TestIcebergHistory(IcebergContract):
    mode, target_class = "history", ChangesTarget


class FilesTarget(Target):
    """Windows as folders, or as manifests; read by the rules that the documentation gives to readers."""

    def __init__(self, folder: Path, **settings: object) -> None:
        super().__init__(folder, files={"path": "out", **settings})

    def read(self, stream: str) -> list[Row]:
        root = self.folder / "out" / stream
        files = sorted(root.glob("window=*/part-*"))
        for manifest in sorted(root.glob("_manifests/*.json")):
            files += [root / "data" / part["name"] for part in json.loads(manifest.read_bytes())["files"]]
        return [row for file in files for row in rows_in(file.name, file.read_bytes())]

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        """JSON has no NaN."""
        return note_rows(stream, one_more(content), share=(pa.float64(), [0.5] * len(content) + [float("nan")]))


class S3FilesTarget(FilesTarget):
    """Manifests in a bucket, read by Arrow's client."""

    def __init__(self, s3: S3ForTests, bucket: str, **settings: object) -> None:
        super().__init__(Path(), **{"path": f"s3://{bucket}/out", **settings})
        self._server, self._root = s3, f"{bucket}/out"
        self.s3 = S3Settings(**vars(s3))

    def read(self, stream: str) -> list[Row]:
        files, root = self._server.files, f"{self._root}/{stream}"
        selector = pa.fs.FileSelector(f"{root}/_manifests", allow_not_found=True)
        manifests = [files.open_input_file(info.path).read() for info in files.get_file_info(selector)]
        names = [f"{root}/data/{part['name']}" for manifest in manifests for part in json.loads(manifest)["files"]]
        return [row for name in names for row in rows_in(name, files.open_input_file(name).read())]

    def open_with_secret(self) -> tuple[Sink, str]:
        return self.open(), self._server.secret_key


class MessagesTarget(Target):
    """Messages of Kafka in files: the number of a row is its offset."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, files={"path": "out", "layout": "connect", "fields": "value"})

    def window(self, number: int) -> Window:
        start, end = (OffsetsMark({stream: {0: n * WINDOW_ROWS} for stream in STREAMS}) for n in (number - 1, number))
        return Window(start, end)

    def rows(self, stream: str, content: Sequence[Row]) -> Rows:
        return self._messages(stream, content, [json.dumps({"id": n, "note": note}) for n, note in content])

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        """A text of two lines would be two messages."""
        return self._messages(stream, one_more(content), [*map(json.dumps, map(note_object, content)), "two\nlines"])

    def _messages(self, stream: str, content: Sequence[Row], values: list[str]) -> Rows:
        offsets = [n for n, _ in content]
        more = {"kafka_partition": (pa.int32(), [0] * len(offsets)), "kafka_offset": (pa.int64(), offsets)}
        rows = note_rows(stream, content, value=(pa.string(), values), **more)
        names = ["value", "kafka_partition", "kafka_offset"]
        return replace(with_tables(rows, [table.select(names) for table in tables_of(rows)]), key=(), order=())

    def read(self, stream: str) -> list[Row]:
        files = sorted((self.folder / "out" / stream).rglob("*.json"))
        return [row for file in files for row in rows_in(file.name, file.read_bytes())]


class TestFilesByRename(SinkContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return FilesTarget(tmp_path, publish="rename", format="json")


class TestFilesByManifest(SinkContract):
    keeps_all = "CSV has a text for every number"

    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return FilesTarget(tmp_path, publish="manifest", format="csv")


class TestFilesOnS3(SinkContract):
    keeps_all = "Parquet has a form for every value"

    @pytest.fixture
    def target(self, s3: S3ForTests, bucket: str) -> SinkTarget:
        return S3FilesTarget(s3, bucket)


class TestFilesOfMessages(SinkContract):
    no_proof = "files are named by offset, and no list of windows is kept"

    @pytest.fixture
    def target(self, tmp_path: Path) -> SinkTarget:
        return MessagesTarget(tmp_path)


class KafkaTarget(Target):
    """A topic per stream."""

    def __init__(self, kafka: KafkaForTests) -> None:
        self._kafka, prefix = kafka, f"t_{uuid.uuid4().hex[:10]}"
        self._topic = f"{prefix}_{{stream}}"
        settings = {"brokers": kafka.brokers, "topic": self._topic, "timeout": "20s"}
        super().__init__(Path(), kafka={**settings, "create_topic": {"partitions": 1}})

    def read(self, stream: str) -> list[Row]:
        topic = self._topic.format(stream=stream.rpartition(".")[2])
        if topic not in self._kafka.admin.list_topics(timeout=10).topics:
            return []
        return [(read.row["id"], read.row["note"]) for read in read_topic(self._kafka, topic)]

    def rows_with_one_unkept(self, stream: str, content: Sequence[Row]) -> Rows:
        """JSON has no NaN."""
        return note_rows(stream, one_more(content), share=(pa.float64(), [0.5] * len(content) + [float("nan")]))

    def open_with_secret(self) -> tuple[Sink, str]:
        login = {"mechanism": "PLAIN", "username": "us", "password": SECRET}
        return self.opened({"kafka": {"brokers": NOWHERE, "topic": "t", "timeout": "1s", "security": login}}), SECRET


class TestKafka(SinkContract):
    no_proof = "a topic cannot be asked which windows it holds"
    doubles = "Kafka and the progress store share no transaction: repeats have equal headwater.position headers"
    stops = "a message is visible at once, so that rejects could not land before it"

    @pytest.fixture
    def target(self, kafka: KafkaForTests) -> SinkTarget:
        return KafkaTarget(kafka)


class ConsoleTarget(Target):
    """What was printed: a title with the stream's name, two lines of heads, and the rows."""

    def __init__(self) -> None:
        super().__init__(Path(), console={"limit": 100})

    def read(self, stream: str) -> list[Row]:
        rows, current = [], ""
        for line in self.out.getvalue().splitlines():
            if " · " in line:
                current = line.split(" · ")[1]
            elif current == stream and line.lstrip()[:1].isdecimal():
                number, note = line.split(maxsplit=1)
                rows.append((int(number), note))
        return rows


class TestConsole(SinkContract):
    no_proof = "what was printed cannot be asked for again"
    doubles = "what was printed cannot be asked for again"
    keeps_all = "it shows rows and keeps none"

    @pytest.fixture
    def target(self) -> SinkTarget:
        return ConsoleTarget()


def one_more(content: Sequence[Row]) -> list[Row]:
    """Behind all others of its window."""
    return [*content, (content[-1][0] + 1, "cannot be kept")]


def note_object(row: Row) -> dict[str, object]:
    return {"id": row[0], "note": row[1]}


def urls(content: Sequence[Row]) -> list[str]:
    """One object for two rows."""
    return [f"s3://bucket/{n // 2}" for n, _ in content]


def rows_in(name: str, data: bytes) -> list[Row]:
    """Of one file, by the end of its name."""
    match name.rpartition(".")[2]:
        case "parquet":
            rows = pq.read_table(pa.BufferReader(data)).to_pylist()
        case "csv":
            rows = list(csv.DictReader(io.StringIO(data.decode())))
        case _:
            rows = [json.loads(line) for line in data.splitlines()]
    return [(int(row["id"]), row["note"]) for row in rows]
