"""Debezium's embedded engine, receiving a slot's changes into nothing. Prints how many and how fast, as JSON.

python bench/debezium_receiver.py HOST PORT SLOT PUBLICATION COUNT FOLDER
"""

from __future__ import annotations

import json
import sys
import threading
import time

from pydbzengine import BasePythonChangeHandler, DebeziumEngine


class Counting(BasePythonChangeHandler):
    """From the first batch to the last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count, self.began, self.ended = 0, 0.0, 0.0
        self.done = threading.Event()

    def handleJsonBatch(self, records) -> None:  # noqa: N802 - the engine's own name
        now = time.monotonic()
        if not self.count:
            self.began = now
        self.count += len(records)
        self.ended = now
        if self.count >= self._limit:
            self.done.set()


def main(port: str, slot: str, publication: str, limit: int, folder: str) -> None:
    handler = Counting(limit)
    engine = DebeziumEngine(
        {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": f"{folder}/offsets.dat",
            "offset.flush.interval.ms": "60000",
            "database.hostname": "127.0.0.1",
            "database.port": port,
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": "postgres",
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": publication,
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "tombstones.on.delete": "false",
            "max.batch.size": "10240",
            "max.queue.size": "81920",
            "schemas.enable": "false",
            "converter.schemas.enable": "false",
        },
        handler,
    )
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    handler.done.wait(300)
    seconds = handler.ended - handler.began
    print(
        json.dumps({"count": handler.count, "seconds": seconds, "rate": handler.count / max(seconds, 1e-9)}), flush=True
    )
    engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), sys.argv[5])
