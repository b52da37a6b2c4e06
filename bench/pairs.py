"""An old and a new commit at the same work, step by step in turn: processor seconds of nine flows.

Each commit is the interpreter of a virtual environment with a checkout of its own installed; the new one runs this file.
Every step is work of the same size for both, and they take turns in going first. A side's seconds are those of its
process and all that it started (Spark's JVM, Python workers), also those that ended; PostgreSQL and Kafka do not count.
Run: python bench/pairs.py PYTHON_OLD PYTHON_NEW [--pairs 10] [FLOW …]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Literal

import psutil  # type: ignore[import-untyped]
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.api import Project

LOADED_ROWS = 1_000_000
CYCLE_ROWS, CYCLE_UPDATES = 300_000, 10_000
UPSERT_ROWS, UPSERT_UPDATES = 1_000_000, 60_000
IDLE_ROWS, IDLE_POLLS = 1_000, 50
SLOT_ROWS, SLOT_CHANGES, SLOT_TRANSACTIONS = 300_000, 100_000, 100
MESSAGES, EVENTS, PARTITIONS = 500_000, 100_000, 3
OBJECTS, OBJECT_BYTES = 2_000, 10_000

PAIRS = 10
WARM_PAIRS = 3  # not counted: the first one copies tables, and the JVM compiles what it runs
MOST = 1.05
COMMAND = str(Path(sys.executable).with_name("headwater"))
# Without bytecode every process would compile all sources; the others could lead to a third checkout.
FOREIGN = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
# Java's second compiler and its parallel collector work when they like: the same step takes 30 % more or less.
JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
# Spark's own daemon ignores the end of its workers, and Linux adds the seconds of an ended process to its parent only
# if that waits for it.
DAEMON = """
import os
from pyspark import daemon

def wait(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass

daemon.SIG_IGN = wait
daemon.manager()
"""
PROJECT = "spark: {conf: {spark.python.daemon.module: patient_daemon}}\n"

Work = Literal["poll", "process"]


def main() -> None:
    if not sys.argv[1:]:  # `make bench` runs every file, and has one commit only
        print("usage: python bench/pairs.py PYTHON_OLD PYTHON_NEW [--pairs 10] [FLOW …]")
        return
    flows = all_flows()
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old", metavar="PYTHON_OLD", help="the interpreter of the old commit")
    arguments.add_argument("new", metavar="PYTHON_NEW", help="the interpreter of the new commit")
    arguments.add_argument("flows", metavar="FLOW", nargs="*", help=f"of {', '.join(flows)}; by default all")
    arguments.add_argument("--pairs", type=int, default=PAIRS)
    options = arguments.parse_intermixed_args()
    if unknown := set(options.flows) - set(flows):
        arguments.error(f"unknown flow: {', '.join(sorted(unknown))}; known: {', '.join(flows)}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-pairs-")))
        servers = stack.enter_context(running_servers(folder))
        for name in options.flows or flows:
            old, new = folder / name / "old", folder / name / "new"
            with running_side(old, options.old) as old_side, running_side(new, options.new) as new_side:
                pairs = measured(name, flows[name], servers, (old_side, new_side), options.pairs)
            print(report(name, flows[name], pairs), flush=True)


@dataclass(frozen=True)
class Servers:
    """Where the data is that both sides read."""

    url: str
    brokers: str
    objects: Path

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def running_servers(folder: Path) -> Iterator[Servers]:
    stack = ("--dir", str(folder / "stack"))
    up = [COMMAND, "stack", "up", "kafka", "postgres", "--json", *stack]
    address = json.loads(subprocess.run(up, check=True, stdout=subprocess.PIPE, text=True).stdout)
    try:
        yield Servers(address["postgres"]["url"], address["kafka"]["brokers"], folder / "inbox")
    finally:
        subprocess.run([COMMAND, "stack", "down", "--remove", "--yes", *stack], check=True, capture_output=True)


@dataclass(frozen=True)
class Flow:
    """Data, and the work on it. A pipeline whose name has the step's number is a new one in each step."""

    text: str
    prepare: Callable[[Servers], None]  # once
    source: str
    mode: Literal["append", "merge"]
    pipeline: str
    change: Callable[[Servers, int], None] = lambda _servers, _number: None  # before each pair but the first
    work: Work = "poll"
    polls: int = 1


def all_flows() -> dict[str, Flow]:
    return {
        "full_load": Flow(
            text=f"first full load of {LOADED_ROWS:,} rows × 7 columns, append",
            prepare=lambda servers: make_table(servers, "loaded", LOADED_ROWS),
            source="sql: {url: '$url', table: public.loaded, cursor: id}",
            mode="append",
            pipeline="full_load_$number",
        ),
        "cycle": Flow(
            text=f"{CYCLE_UPDATES:,} updates polled and merged into {CYCLE_ROWS:,} rows",
            prepare=lambda servers: make_table(servers, "cycled", CYCLE_ROWS),
            change=lambda servers, number: update(servers, "cycled", CYCLE_UPDATES, CYCLE_ROWS, number),
            source="sql: {url: '$url', table: public.cycled, cursor: updated_at}",
            mode="merge",
            pipeline="cycle",
        ),
        "idle": Flow(
            text=f"{IDLE_POLLS} polls that find nothing new",
            prepare=lambda servers: make_table(servers, "idle", IDLE_ROWS),
            change=take_transaction_id,
            source="sql: {url: '$url', table: public.idle, cursor: id}",
            mode="append",
            pipeline="idle",
            polls=IDLE_POLLS,
        ),
        "process": Flow(
            text="a process of `headwater run FILE --once` that finds nothing new",
            prepare=lambda servers: make_table(servers, "process", IDLE_ROWS),
            change=take_transaction_id,
            source="sql: {url: '$url', table: public.process, cursor: id}",
            mode="append",
            pipeline="process",
            work="process",
        ),
        "upsert": Flow(
            text=f"{UPSERT_UPDATES:,} updates polled and merged into {UPSERT_ROWS:,} rows",
            prepare=lambda servers: make_table(servers, "upserted", UPSERT_ROWS),
            change=lambda servers, number: update(servers, "upserted", UPSERT_UPDATES, UPSERT_ROWS, number),
            source="sql: {url: '$url', table: public.upserted, cursor: updated_at}",
            mode="merge",
            pipeline="upsert",
        ),
        "slot": Flow(
            text=f"{SLOT_CHANGES:,} changes from a slot merged into {SLOT_ROWS:,} rows",
            prepare=lambda servers: make_table(servers, "captured", SLOT_ROWS),
            change=write_changes,
            source="postgres: {url: '$url', tables: [public.captured], slot: pairs_$side}",
            mode="merge",
            pipeline="slot",
        ),
        "kafka": Flow(
            text=f"{MESSAGES:,} JSON messages in {PARTITIONS} partitions, append",
            prepare=lambda servers: produce(servers, "messages", map(message, range(MESSAGES))),
            source="kafka: {brokers: '$brokers', topics: messages, start: earliest, "
            "schema: 'id bigint, name string, amount decimal(12,2), at timestamp, note string'}",
            mode="append",
            pipeline="kafka_$number",
        ),
        "debezium": Flow(
            text=f"{EVENTS:,} Debezium events in {PARTITIONS} partitions merged into a new table",
            prepare=lambda servers: produce(servers, "shop.public.orders", map(event, range(EVENTS))),
            source="kafka: {brokers: '$brokers', topics: shop.public.orders, start: earliest, format: debezium}",
            mode="merge",
            pipeline="debezium_$number",
        ),
        "objects": Flow(
            text=f"{OBJECTS:,} JSON objects of {OBJECT_BYTES:,} bytes, append",
            prepare=write_objects,
            source="objects: {url: '$objects', format: json, "
            "schema: 'id bigint, at timestamp, customer string, amount double, note string'}",
            mode="append",
            pipeline="objects_$number",
        ),
    }


@dataclass(frozen=True)
class Step:
    """What one side needed for its half of a pair."""

    processor: float
    wall: float
    rows: int


@dataclass(frozen=True)
class Side:
    """One commit: its project, and a process that stays for all steps of a flow."""

    folder: Path
    process: subprocess.Popen[str]

    @property
    def name(self) -> str:
        return self.folder.name

    def step(self, name: str, flow: Flow, servers: Servers, number: int) -> Step:
        pipeline = Template(flow.pipeline).substitute(number=number)
        words = {"url": servers.url, "brokers": servers.brokers, "objects": servers.objects, "side": self.name}
        source = Template(flow.source).substitute(words)
        sink = f"iceberg: {{table: lake.pairs.{pipeline}, mode: {flow.mode}}}"
        file = self.folder / f"{pipeline}.yaml"
        file.write_text(f"pipeline: {pipeline}\nsource: {{{source}}}\nsinks: [{sink}]\n")
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"file": str(file), "work": flow.work, "polls": flow.polls}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{name}: the {self.name} side failed; see above")
        return Step(**json.loads(answer))


@contextmanager
def running_side(folder: Path, python: str) -> Iterator[Side]:
    folder.mkdir(parents=True)
    (folder / "headwater.yaml").write_text(PROJECT)
    (folder / "patient_daemon.py").write_text(DAEMON)  # in the JVM's working directory, where `python -m` looks
    environment = JAVA | {name: value for name, value in os.environ.items() if name not in FOREIGN}
    command = [str(Path(python).absolute()), str(Path(__file__).absolute()), "--child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        yield Side(folder, process)


def measured(name: str, flow: Flow, servers: Servers, sides: Sequence[Side], pairs: int) -> Sequence[tuple[Step, Step]]:
    say(f"{name}: makes its data")
    flow.prepare(servers)
    steps = []
    for number in range(WARM_PAIRS + pairs):
        if number:
            flow.change(servers, number)
        order = sides if number % 2 else sides[::-1]
        results = {side.name: side.step(name, flow, servers, number) for side in order}
        old, new = results["old"], results["new"]
        say(
            f"{name}: {number - WARM_PAIRS + 1 if number >= WARM_PAIRS else 'warm'}: {old.rows:,} rows, "
            f"processor {old.processor:.3f} s old, {new.processor:.3f} s new, wall {old.wall:.2f} s, {new.wall:.2f} s"
        )
        if old.rows != new.rows:
            raise SystemExit(f"{name}: the old side landed {old.rows:,} rows, the new one {new.rows:,}")
        steps.append((old, new))
    return steps[WARM_PAIRS:]


def report(name: str, flow: Flow, pairs: Sequence[tuple[Step, Step]]) -> str:
    old, new = ([pair[side] for pair in pairs] for side in (0, 1))
    ratios = [after.processor / before.processor for before, after in pairs]
    lines = [f"{name}: {flow.text}; {len(pairs)} pairs"]
    for word, get in (("processor", lambda step: step.processor), ("wall", lambda step: step.wall)):
        medians = (statistics.median(map(get, steps)) for steps in (old, new))
        lines.append("  {:<9} old {:7.3f} s   new {:7.3f} s".format(word, *medians))
    lines.append(
        f"  new / old {statistics.median(ratios):.3f} ×, from {min(ratios):.3f} to {max(ratios):.3f}   (at most {MOST})"
    )
    return "\n".join(lines)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def child(folder: Path) -> None:
    """Answer each line on stdin, a step to take, with a line on stdout."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers, Project.open(folder) as project:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed does not come between answers
        for line in sys.stdin:
            request = json.loads(line)
            file = Path(request["file"])
            step = poll(project, file, request["polls"]) if request["work"] == "poll" else run_process(file)
            print(json.dumps(asdict(step)), file=answers, flush=True)


def poll(project: Project, file: Path, polls: int) -> Step:
    pipeline, rows = project.pipelines([file])[0], 0
    began, used = time.monotonic(), tree_seconds()
    for _ in range(polls):
        more = True
        while more:
            result = pipeline.run_once()
            if result.error:
                raise result.error
            rows, more = rows + result.rows, result.more
    return Step(tree_seconds() - used, time.monotonic() - began, rows)


def run_process(file: Path) -> Step:
    began, used = time.monotonic(), ended_seconds()
    run = [COMMAND, "run", str(file), "--once", "--json"]
    process = subprocess.run(run, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(process.stderr)
    return Step(ended_seconds() - used, time.monotonic() - began, json.loads(process.stdout)["rows"]["landed"])


def tree_seconds() -> float:
    """Of this process and all below it. The seconds of one that ended are with its parent, which waited for it."""
    while True:
        below = psutil.Process().children(recursive=True)
        try:
            used = [process.cpu_times() for process in below]
        except psutil.NoSuchProcess:
            continue
        own = time.process_time() + ended_seconds()  # finer than the hundredths of the others
        if psutil.Process().children(recursive=True) == below:  # else one may be missing, or counted twice
            return own + sum(float(one.user + one.system + one.children_user + one.children_system) for one in used)


def ended_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_table(servers: Servers, name: str, rows: int) -> None:
    servers.execute(
        f"""CREATE TABLE {name} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text, amount numeric(12,2), updated_at timestamptz,
            flag boolean, note text, payload jsonb)"""
    )
    servers.execute(insertion(name, f"generate_series(1, {rows})"))
    servers.execute(f"VACUUM ANALYZE {name}")


def insertion(name: str, numbers: str) -> str:
    return f"""INSERT INTO {name} (customer, amount, updated_at, flag, note, payload)
        SELECT 'customer ' || n % 1000, (n % 1000000) / 100.0, now() - interval '1 day' + n * interval '1 ms',
        n % 2 = 0, 'a note about order ' || n, jsonb_build_object('k', n, 'v', 'payload') FROM {numbers} AS n"""


def update(servers: Servers, name: str, updates: int, rows: int, number: int) -> None:
    """So many rows, spread over the table; others than in the step before."""
    spread = rows // updates
    servers.execute(
        f"""UPDATE {name} SET amount = amount + 1, updated_at = clock_timestamp(), note = 'changed in step {number}'
            WHERE id = ANY(ARRAY(SELECT generate_series({1 + number % spread}, {rows}, {spread}) LIMIT {updates}))"""
    )


def take_transaction_id(servers: Servers, _: int) -> None:
    """As any writer would. Polls then look for late rows, for three times the cost; else autovacuum decides when."""
    servers.execute("SELECT pg_current_xact_id()")


def write_changes(servers: Servers, number: int) -> None:
    """A fifth inserts, three fifths updates, spread over the table; a fifth deletes the last rows of the step before."""
    changes = SLOT_CHANGES // SLOT_TRANSACTIONS
    fifth = changes // 5
    step = SLOT_TRANSACTIONS * fifth
    servers.execute(
        f"""DO $$ DECLARE first bigint; BEGIN FOR t IN 0 .. {SLOT_TRANSACTIONS - 1} LOOP
            first := {SLOT_ROWS + 1 + (number - 1) * step} + t * {fifth};
            {insertion("captured", f"generate_series(first, first + {fifth - 1})")};
            UPDATE captured SET amount = amount + 1, updated_at = clock_timestamp(), note = 'changed in step {number}'
            WHERE id = ANY(ARRAY(SELECT 1 + ((t * {3 * fifth} + n) * 7919 + {number}) % {SLOT_ROWS - step}
                                 FROM generate_series(0, {3 * fifth - 1}) AS n));
            DELETE FROM captured WHERE id BETWEEN first - {step} AND first - {step} + {fifth - 1};
            COMMIT;
        END LOOP; END $$"""
    )


def message(number: int) -> tuple[str, str]:
    value = {"id": number, "name": f"customer {number * 7 % 100_003}", "amount": f"{number % 1000}.{number % 100:02d}"}
    value |= {"at": f"2026-03-02T08:{number // 60 % 60:02d}:{number % 60:02d}.123456Z", "note": "x" * 85}
    return str(number), json.dumps(value)


def event(number: int) -> tuple[str, str]:
    """Of ten events six insert a row, three update and one deletes an earlier one."""
    kind, tenth = number % 10, number // 10 * 10
    key, op = (number, "c") if kind < 6 else (tenth + kind - 6, "u") if kind < 9 else (tenth + 5, "d")
    row = {"id": key, "customer": f"customer {key % 1000}", "amount": number / 100, "flag": key % 2 == 0}
    row |= {"note": f"a note about order {key}, event {number}", "pieces": number % 7, "updated_at": number}
    source = {"connector": "postgresql", "sequence": f'["{number}","{number}"]', "lsn": number, "txId": number}
    source |= {"schema": "public", "table": "orders", "db": "shop", "snapshot": "false", "ts_ms": number}
    value = {"op": op, "before": None if op == "c" else row, "after": None if op == "d" else row}
    return json.dumps({"id": key}), json.dumps(value | {"source": source, "ts_ms": number})


def produce(servers: Servers, topic: str, messages: Iterable[tuple[str, str]]) -> None:
    options = {"bootstrap.servers": servers.brokers}
    admin = AdminClient(options)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer(options | {"linger.ms": 50, "queue.buffering.max.messages": max(MESSAGES, EVENTS)})
    for key, value in messages:
        producer.produce(topic, value, key)
    assert producer.flush(120) == 0


def write_objects(servers: Servers) -> None:
    servers.objects.mkdir()
    for number in range(OBJECTS):
        lines: list[str] = []
        while sum(map(len, lines)) < OBJECT_BYTES:
            row = {"id": number * 1000 + len(lines), "at": f"2026-03-02T08:00:{len(lines) % 60:02d}Z"}
            row |= {
                "customer": f"customer {number % 997}",
                "amount": number / 100,
                "note": "lorem ipsum " * (number % 4),
            }
            lines.append(json.dumps(row) + "\n")
        (servers.objects / f"{number:06d}.jsonl").write_text("".join(lines))


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        child(Path.cwd())
    else:
        main()
