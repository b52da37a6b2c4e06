"""What is recorded: one small pipeline per cell, so that each kind of store, source, sink and mode appears.

Source data comes in numbered batches. Batches 1 and 2 are recorded: the window of batch 1 has landed, that of batch 2 was
killed when a sink had published it. The test adds batches 3 and 4. What a sink must hold is a plain function of how many
batches there are.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.upgrade.servers import BUCKET, PostgresFixture, S3Fixture

Rows = Counter[tuple[Any, ...]]
SIZE = 3  # rows that a batch brings
SECOND = 1_790_000_000  # when the first object was changed; whole seconds, so that every disk keeps it


@dataclass(frozen=True)
class Servers:
    """Those that a cell may use, started when it asks."""

    postgres: Callable[[], PostgresFixture]
    kafka: Callable[[], str]
    s3: Callable[[], S3Fixture]


@dataclass(frozen=True)
class Place:
    """Where a cell lives: its folder, and the servers of its source."""

    cell: str
    folder: Path
    servers: Servers

    def database(self) -> psycopg.Connection:
        return psycopg.connect(self.servers.postgres().url(self.cell), autocommit=True)


# The batches


def numbers(batch: int) -> range:
    return range(10 * batch + 1, 10 * batch + 1 + SIZE)


def item(number: int) -> str:
    return f"item {number}"


def inserted(batches: int) -> Rows:
    """Sources whose rows never change."""
    return Counter((n, item(n)) for batch in range(1, batches + 1) for n in numbers(batch))


def of_last_batch(batches: int) -> Rows:
    return Counter((n, item(n)) for n in numbers(batches))


@dataclass(frozen=True)
class Change:
    """One change of a row: `op` is c, u or d."""

    op: str
    id: int
    item: str | None


def changes_of(batch: int) -> Sequence[Change]:
    """New rows, and from the second batch on an update and a delete of rows of the batch before."""
    changes = [Change("c", n, item(n)) for n in numbers(batch)]
    if batch > 1:
        updated, deleted, *_ = numbers(batch - 1)
        changes += [Change("u", updated, f"{item(updated)}, again"), Change("d", deleted, None)]
    return changes


def _changes(batches: int) -> Iterator[Change]:
    for batch in range(1, batches + 1):
        yield from changes_of(batch)


def current(batches: int) -> Rows:
    """One row per key."""
    rows: dict[int, str | None] = {change.id: change.item for change in _changes(batches)}
    return Counter((n, text) for n, text in rows.items() if text is not None)


def updated(batches: int) -> Rows:
    """As `current`, where nothing tells of deletes and none happens."""
    rows = {change.id: change.item for change in _changes(batches) if change.op != "d"}
    return Counter(rows.items())


def events(batches: int) -> Rows:
    """Every change."""
    return Counter((change.op, change.id) for change in _changes(batches))


def copied_events(batches: int) -> Rows:
    """The same where the first batch came by an initial copy, which begins with an emptied table."""
    copied = Counter({("t", None): 1} | dict.fromkeys((("r", n) for n in numbers(1)), 1))
    return copied + events(batches) - events(1)


def versions(batches: int) -> Rows:
    """Every version of every row, and whether it is the current one."""
    now = current(batches)
    counts = Counter((change.id, change.item) for change in _changes(batches) if change.item is not None)
    return Counter({(*version, version in now): count for version, count in counts.items()})


def rewritten(batches: int) -> Rows:
    """Objects of which each batch rewrites the one before."""
    return Counter((n, item(n) if batch == batches else f"{item(n)}, again") for batch in range(1, batches + 1) for n in numbers(batch))  # fmt: skip


# The sources


class Source:
    """Settings of a source, and how a batch gets into it."""

    settings: Mapping[str, Any]

    def prepare(self, place: Place) -> None:
        """Called once, before the first batch."""

    def add(self, place: Place, batch: int) -> None:
        raise NotImplementedError

    def environment(self, place: Place) -> Mapping[str, str]:
        """What the variables in the settings stand for."""
        return {}

    def mark(self, batches: int) -> Any:
        """What `marks --json` promises after so many batches; None: the source alone knows."""

    def rows(self, batch: int) -> int:
        """How many a batch brings."""
        return SIZE


@dataclass(frozen=True)
class SqliteTable(Source):
    """`orders` in a SQLite file."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"sql": {"url": "sqlite:///shop.db", "table": "orders", "cursor": "id"}}

    def prepare(self, place: Place) -> None:
        self._execute(place, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")

    def add(self, place: Place, batch: int) -> None:
        for n in numbers(batch):
            self._execute(place, f"INSERT INTO orders VALUES ({n}, '{item(n)}')")

    def mark(self, batches: int) -> Any:
        return _column("id", numbers(batches)[-1])

    def _execute(self, place: Place, statement: str) -> None:
        with closing(sqlite3.connect(place.folder / "shop.db")) as connection, connection:
            connection.execute(statement)


@dataclass(frozen=True)
class PostgresTables(Source):
    """Tables of a database of the cell's own, of which rows are only added."""

    tables: Sequence[str]
    key: str = "PRIMARY KEY"

    @property
    def settings(self) -> Mapping[str, Any]:
        names = {"table": self.tables[0]} if len(self.tables) == 1 else {"tables": list(self.tables)}
        return {"sql": {"url": "${PG_URL}", **names, "cursor": "id"}}

    def prepare(self, place: Place) -> None:
        _make_database(place)
        with place.database() as database:
            for table in self.tables:
                database.execute(f"CREATE TABLE {table} (id bigint NOT NULL {self.key}, item text)")

    def add(self, place: Place, batch: int) -> None:
        with place.database() as database:
            for table in self.tables:
                for n in numbers(batch):
                    database.execute(f"INSERT INTO {table} VALUES (%s, %s)", [n, item(n)])

    def environment(self, place: Place) -> Mapping[str, str]:
        return {"PG_URL": place.servers.postgres().url(place.cell)}

    def mark(self, batches: int) -> Any:
        one = _column("id", numbers(batches)[-1])
        if len(self.tables) == 1:
            return one
        return {"kind": "streams", "streams": dict.fromkeys(sorted(self.tables), one)}

    def rows(self, batch: int) -> int:
        return SIZE * len(self.tables)


@dataclass(frozen=True)
class PostgresSequence(PostgresTables):
    """A table whose rows are updated, and come again with a greater `seq`."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"sql": {"url": "${PG_URL}", "table": self.tables[0], "cursor": "seq"}}

    def prepare(self, place: Place) -> None:
        _make_database(place)
        with place.database() as database:
            database.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, item text, seq bigint GENERATED ALWAYS AS IDENTITY)"
            )

    def add(self, place: Place, batch: int) -> None:
        with place.database() as database:
            for change in changes_of(batch):
                if change.op == "c":
                    database.execute("INSERT INTO orders VALUES (%s, %s)", [change.id, change.item])
                elif change.op == "u":
                    update = "UPDATE orders SET item = %s, seq = DEFAULT WHERE id = %s"
                    database.execute(update, [change.item, change.id])

    def mark(self, batches: int) -> Any:
        return _column("seq", batches * (SIZE + 1) - 1)

    def rows(self, batch: int) -> int:
        return sum(change.op != "d" for change in changes_of(batch))


@dataclass(frozen=True)
class PostgresSlot(Source):
    """Change capture by a replication slot; the first batch comes by the initial copy."""

    slot: str

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"postgres": {"url": "${PG_URL}", "tables": ["public.orders"], "slot": self.slot}}

    def prepare(self, place: Place) -> None:
        _make_database(place)
        with place.database() as database:
            database.execute("CREATE TABLE orders (id bigint PRIMARY KEY, item text)")

    def add(self, place: Place, batch: int) -> None:
        with place.database() as database:
            for change in changes_of(batch):
                if change.op == "c":
                    database.execute("INSERT INTO orders VALUES (%s, %s)", [change.id, change.item])
                elif change.op == "u":
                    database.execute("UPDATE orders SET item = %s WHERE id = %s", [change.item, change.id])
                else:
                    database.execute("DELETE FROM orders WHERE id = %s", [change.id])

    def environment(self, place: Place) -> Mapping[str, str]:
        return {"PG_URL": place.servers.postgres().url(place.cell)}

    def rows(self, batch: int) -> int:
        return len(changes_of(batch))


@dataclass(frozen=True)
class Topic(Source):
    """A topic of one partition, with JSON whose columns nobody wrote down; the second batch brings a new column."""

    name: str
    format: str = "json"
    unreadable: int = 0  # messages of the second batch that are no JSON

    @property
    def settings(self) -> Mapping[str, Any]:
        more = {"metadata": ["partition", "offset"]} if self.format == "text" else {}
        return {"kafka": {"brokers": "${BROKERS}", "topics": [self.name], "format": self.format, "start": "earliest", **more}}  # fmt: skip

    def prepare(self, place: Place) -> None:
        make_topic(place, self.name)

    def add(self, place: Place, batch: int) -> None:
        producer = Producer({"bootstrap.servers": place.servers.kafka(), "log_level": 0})
        for key, value in self.messages(batch):
            producer.produce(self.name, value, key=key)
        assert producer.flush(30) == 0

    def messages(self, batch: int) -> Sequence[tuple[str | None, str]]:
        more = {"note": "of batch 2 and later"} if batch > 1 else {}
        unreadable = [(None, "{no JSON")] * (self.unreadable if batch == 2 else 0)
        return [*unreadable, *((str(n), json.dumps({"id": n, "item": item(n), **more})) for n in numbers(batch))]

    def environment(self, place: Place) -> Mapping[str, str]:
        return {"BROKERS": place.servers.kafka()}

    def mark(self, batches: int) -> Any:
        count = sum(len(self.messages(batch)) for batch in range(1, batches + 1))
        return {"kind": "offsets", "topics": {self.name: {"0": count}}}


@dataclass(frozen=True)
class DebeziumTopic(Topic):
    """A topic of change events without schemas."""

    format: str = "debezium"

    def messages(self, batch: int) -> Sequence[tuple[str | None, str]]:
        return [(json.dumps(key), json.dumps(value)) for key, value in debezium_events(batch)]

    def rows(self, batch: int) -> int:
        return len(changes_of(batch))


def debezium_events(batch: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Key and value of each message."""
    for place, change in enumerate(changes_of(batch)):
        lsn = 1000 * batch + 10 * place
        origin = {
            "connector": "postgresql", "sequence": f'["{lsn - 1}","{lsn}"]', "lsn": lsn, "txId": lsn,
            "ts_us": (SECOND + lsn) * 1_000_000,
        }  # fmt: skip
        row = {"id": change.id, "item": change.item}
        before, after = ({"id": change.id, "item": None}, None) if change.op == "d" else (None, row)
        yield {"id": change.id}, {"before": before, "after": after, "source": origin, "op": change.op}


@dataclass(frozen=True)
class Objects(Source):
    """Objects in S3: one a batch, and perhaps another version of the one before."""

    prefix: str
    rewrites: bool = False

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"objects": {"url": f"s3://{BUCKET}/{self.prefix}/", "format": "json"}}

    def add(self, place: Place, batch: int) -> None:
        self._put(place, batch, "", batch)
        if self.rewrites and batch > 1:
            self._put(place, batch - 1, ", again", batch)

    def _put(self, place: Place, number: int, more: str, batch: int) -> None:
        lines = [json.dumps({"id": n, "item": item(n) + more}) for n in numbers(number)]
        self._write(place, f"{number:02d}.jsonl", lines, batch)

    def _write(self, place: Place, name: str, lines: Sequence[str], batch: int) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        place.servers.s3().put(f"{self.prefix}/{name}", content, SECOND + batch)

    def environment(self, place: Place) -> Mapping[str, str]:
        return {f"S3_{name.upper()}": text for name, text in place.servers.s3().address.items()}

    def mark(self, batches: int) -> Any:
        return {"kind": "objects", "generation": batches, "count": batches}

    def rows(self, batch: int) -> int:
        return 2 * SIZE if self.rewrites and batch > 1 else SIZE


@dataclass(frozen=True)
class DebeziumObjects(Objects):
    """Change events in objects, as Kafka Connect's S3 sinks write them."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"objects": {"url": f"s3://{BUCKET}/{self.prefix}/", "format": "debezium"}}

    def add(self, place: Place, batch: int) -> None:
        first = 100 * batch
        lines = [
            json.dumps({"key": key, "value": value, "offset": first + n})
            for n, (key, value) in enumerate(debezium_events(batch))
        ]
        self._write(place, f"orders+0+{first:010d}.json", lines, batch)

    def rows(self, batch: int) -> int:
        """A history counts what it writes: new versions, and those that they or a delete bring to an end."""
        return sum({"c": 1, "u": 2, "d": 1}[change.op] for change in changes_of(batch))


def make_topic(place: Place, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": place.servers.kafka(), "log_level": 0})
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[name].result()


def _column(name: str, value: int) -> Mapping[str, Any]:
    return {"kind": "column", "column": name, "type": "integer", "value": value}


def _make_database(place: Place) -> None:
    with psycopg.connect(place.servers.postgres().url("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {place.cell}")


# The sinks


@dataclass(frozen=True)
class Sink:
    """Settings of a sink, and what it must hold of each stream."""

    settings: Mapping[str, Any]
    expected: Callable[[int], Rows]
    columns: Sequence[str] = ("id", "item")
    streams: Sequence[str] = ("orders",)


def iceberg(cell: str, mode: str, expected: Callable[[int], Rows], **more: Any) -> Sink:
    """A table per stream in the cell's own catalog: `catalog.shop.orders_mode`."""
    settings = {"table": f"{catalog(cell)}.shop.{{stream}}_{mode}", "mode": mode}
    if "key" in more:
        settings["key"] = more.pop("key")
    return Sink({"iceberg": settings}, expected, **more)


def catalog(cell: str) -> str:
    """Each lake has a name of its own: a Spark session can hold all of them."""
    return f"lake_{cell}"


def changed_tables(
    cell: str, *modes: str, log: Callable[[int], Rows] = events, stream: str = "orders"
) -> Sequence[Sink]:
    """What change capture fills."""
    of = {
        "changes": (log, ("_op", "id")),
        "merge": (current, ("id", "item")),
        "history": (versions, ("id", "item", "is_current")),
    }
    return [iceberg(cell, mode, of[mode][0], columns=of[mode][1], streams=(stream,)) for mode in modes]


# The cells


@dataclass(frozen=True)
class Cell:
    """A store, a source and sinks. `killed` is the passage of `land.published` that was the last thing it did."""

    name: str
    progress: str | Sequence[str]
    source: Source
    sinks: Sequence[Sink]
    killed: int = 1
    rejects: int = 0  # rows of the rejects table
    paused: str = ""  # the stream that its lake refused instead: nothing was killed

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "pipeline": self.name,
            "lease": "2s",
            "source": self.source.settings,
            "sinks": [sink.settings for sink in self.sinks],
        }

    @property
    def project(self) -> Mapping[str, Any]:
        s3 = {name: f"${{S3_{name.upper()}}}" for name in ("endpoint", "region", "access_key", "secret_key")}
        return {
            "progress": self.progress,
            "lake": {"name": catalog(self.name)},
            "spark": {"master": "local[2]", "memory": "1g"},
            **({"s3": s3} if isinstance(self.source, Objects) else {}),
        }

    def prepare(self, place: Place) -> None:
        """Called once, before the first batch."""
        self.source.prepare(place)
        for sink in self.sinks:
            if "kafka" in sink.settings:
                make_topic(place, sink.settings["kafka"]["topic"])

    def environment(self, place: Place) -> Mapping[str, str]:
        """What the variables in the pipeline's files stand for."""
        variables = dict(self.source.environment(place))
        if _POSTGRES in self.progress:
            variables["STORE_URL"] = place.servers.postgres().url("progress")
        if any("kafka" in sink.settings for sink in self.sinks):
            variables["BROKERS"] = place.servers.kafka()
        return variables


_FILE, _SQLITE, _POSTGRES = "file:progress", "sqlite:///progress.db", "${STORE_URL}"

CELLS = {
    cell.name: cell
    for cell in (
        Cell("sqlite_append", _SQLITE, SqliteTable(), [iceberg("sqlite_append", "append", inserted)]),
        Cell(
            "sqlite_replace",
            [_FILE, _SQLITE],
            SqliteTable(),
            [
                iceberg("sqlite_replace", "replace", of_last_batch),
                Sink({"files": {"path": "landed/{stream}"}}, inserted),
            ],
        ),
        Cell("sqlite_console", _FILE, SqliteTable(), [Sink({"console": {"format": "json"}}, inserted)]),
        Cell(
            "sql_files",
            _FILE,
            PostgresTables(["orders"]),
            [
                Sink({"files": {"path": "by_manifest", "format": "json", "publish": "manifest"}}, inserted),
                Sink({"files": {"path": "by_rename/{stream}", "publish": "rename"}}, inserted),
            ],
            killed=2,
        ),
        Cell(
            "sql_tables",
            _POSTGRES,
            PostgresTables(["bills", "orders"]),
            [iceberg("sql_tables", "append", inserted, streams=("bills", "orders"))],
            killed=2,
        ),
        Cell("sql_merge", _POSTGRES, PostgresSequence(["orders"]), [iceberg("sql_merge", "merge", updated)]),
        Cell(
            "sql_kafka",
            ["memory:", _POSTGRES],
            PostgresTables(["orders"], key=""),
            [Sink({"kafka": {"brokers": "${BROKERS}", "topic": "sql_kafka_out"}}, inserted)],
        ),
        Cell(
            "sql_paused",
            _SQLITE,
            PostgresTables(["bills", "orders"]),
            [
                Sink({"files": {"path": "landed/{stream}"}}, inserted, streams=("bills", "orders")),
                iceberg("sql_paused", "append", inserted, streams=("bills", "orders")),
            ],
            paused="bills",
        ),
        Cell(
            "kafka_append",
            _SQLITE,
            Topic("kafka_append", unreadable=1),
            [iceberg("kafka_append", "append", inserted, streams=("kafka_append",))],
            killed=2,
            rejects=1,
        ),
        Cell(
            "kafka_files",
            _FILE,
            Topic("kafka_files", format="text"),
            [Sink({"files": {"path": "landed", "layout": "connect"}}, inserted)],
        ),
        Cell(
            "kafka_debezium",
            _POSTGRES,
            DebeziumTopic("kafka_debezium"),
            changed_tables("kafka_debezium", "changes", "merge", "history", stream="kafka_debezium"),
            killed=3,
        ),
        Cell(
            "objects_append",
            _SQLITE,
            Objects("append"),
            [iceberg("objects_append", "append", inserted, streams=("append",))],
        ),
        Cell(
            "objects_replaced",
            ["memory:", _POSTGRES],
            Objects("replaced", rewrites=True),
            [iceberg("objects_replaced", "replace_object", rewritten, streams=("replaced",))],
        ),
        Cell(
            "objects_debezium",
            _SQLITE,
            DebeziumObjects("debezium"),
            changed_tables("objects_debezium", "history", stream="debezium"),
        ),
        Cell(
            "slot_tables",
            _FILE,
            PostgresSlot("slot_tables"),
            changed_tables("slot_tables", "changes", "merge", "history", log=copied_events),
            killed=2,
        ),
        Cell(
            "slot_kafka",
            _SQLITE,
            PostgresSlot("slot_kafka"),
            [
                Sink(
                    {"kafka": {"brokers": "${BROKERS}", "topic": "slot_kafka_out"}},
                    copied_events,
                    ("_op", "id"),
                )
            ],
        ),
    )
}
