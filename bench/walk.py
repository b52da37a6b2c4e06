"""The modules that one window passes, in each of four flows: a SQL poll, a slot, Debezium over Kafka, objects.

Run: python bench/walk.py

A module counts when one of its functions is called, in the engine's process (the windows are small: no task runs
elsewhere). A return is a call into a module that the walk had left before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
from confluent_kafka import Producer

import headwater
from headwater.api import Project

ROOT = str(Path(headwater.__file__).parent)
COMMAND = str(Path(sys.executable).with_name("headwater"))
LAKE = "[iceberg: {table: 'lake.walk.NAME', mode: merge, key: [id]}]"


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        up = [COMMAND, "stack", "up", "kafka", "postgres", "--json", "--dir", str(folder / "stack")]
        stack = json.loads(subprocess.run(up, check=True, capture_output=True, text=True).stdout)
        try:
            walks(folder, stack["postgres"]["url"], stack["kafka"]["brokers"])
        finally:
            subprocess.run([COMMAND, "stack", "down", "--dir", str(folder / "stack")], check=True, capture_output=True)


def walks(folder: Path, url: str, brokers: str) -> None:
    def sql(text: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text)

    def event(number: int) -> None:
        producer = Producer({"bootstrap.servers": brokers})
        source = {"connector": "postgresql", "sequence": f'["{number}","{number}"]', "lsn": number, "txId": number}
        source |= {"schema": "public", "table": "orders", "db": "shop", "snapshot": "false", "ts_ms": number}
        value = {"op": "c", "before": None, "after": {"id": number, "note": "x"}, "source": source, "ts_ms": number}
        producer.produce("shop.public.orders", json.dumps(value), json.dumps({"id": number}))
        producer.flush()

    def write(number: int) -> None:
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"{number}.json").write_text(json.dumps({"id": number, "note": "x"}) + "\n")

    sql("CREATE TABLE polled (id int PRIMARY KEY, note text)")
    sql("CREATE TABLE captured (id int PRIMARY KEY, note text)")
    flows: dict[str, tuple[str, Callable[[int], None]]] = {
        "polled": (
            f"sql: {{url: '{url}', table: public.polled, cursor: id}}",
            lambda number: sql(f"INSERT INTO polled VALUES ({number}, 'x')"),
        ),
        "captured": (
            f"postgres: {{url: '{url}', tables: [public.captured], slot: walk}}",
            lambda number: sql(f"INSERT INTO captured VALUES ({number}, 'x')"),
        ),
        "events": (f"kafka: {{brokers: '{brokers}', topics: [shop.public.orders], format: debezium}}", event),
        "objects": (f"objects: {{url: '{folder}/in/', format: json}}", write),
    }
    for name, (source, add) in flows.items():
        file = folder / f"{name}.yaml"
        file.write_text(f"pipeline: {name}\nsource: {{{source}}}\nsinks: {LAKE.replace('NAME', name)}\n")
        with Project.open(folder) as project:
            pipeline = project.pipelines([file])[0]
            for number in (1, 2):
                add(number)
                run(pipeline)
            add(3)
            passed = Walk()
            with passed:
                run(pipeline)
        print(f"{name:10} {len(passed.modules):4} modules {passed.returns:6,} returns")
        if "--list" in sys.argv:
            print("\n".join(sorted(passed.modules)))


def run(pipeline: object) -> None:
    result = pipeline.run_once()  # type: ignore[attr-defined]
    assert result.outcome == "landed", result


class Walk:
    """Notes the modules of every call while it is entered, in all threads."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.returns = 0
        self._last = ""

    def __enter__(self) -> None:
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: object, event: str, _: object) -> None:
        path = frame.f_code.co_filename  # type: ignore[attr-defined]
        if event != "call" or not path.startswith(ROOT) or path == self._last:
            return
        module = path.removeprefix(f"{ROOT}/")
        self.returns += module in self.modules
        self.modules.add(module)
        self._last = path


if __name__ == "__main__":
    main()
