"""A folder that JSON objects arrive in, some of them damaged, a pipeline over it, and the oracle of what must have landed."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[str, int]


class JsonObjects(World):
    """Writes objects, and remembers what the table must hold."""

    def __init__(
        self, folder: Path, spark: SparkSession, table: str, mode: str, *, max_objects: int = 40, seed: int = 1
    ) -> None:
        self.table, self.mode = table, mode
        self.inbox = folder / "in"
        self.inbox.mkdir()
        self._random, self._number = random.Random(seed), 0
        self.good: dict[str, list[int]] = {}
        self.landed: Counter[Row] = Counter()  # of append: every version that was there when a cycle looked
        self.damaged: set[str] = set()
        source = {"format": "json", "schema": "n bigint", "tries": 2, "retry_after": "0s", "max_objects": max_objects}
        super().__init__(
            folder,
            {"objects": {"url": "./in", **source}},
            [{"iceberg": {"table": table, "mode": mode}}],
            name="objects",
            spark=spark,
        )

    def add(self, count: int, damaged: int = 0) -> None:
        """New objects; so many of them cannot be read."""
        for place in range(count):
            self._number += 1
            name = f"{self._random.randrange(10)}/{self._number:06d}.jsonl.gz"
            if place < damaged:
                self._put(name, gzip.compress(b'{"n": 1}\n' * 50)[:-10])
                self.damaged.add(name)
            else:
                self._write(name)

    def update(self, count: int) -> None:
        for name in self._random.sample(sorted(self.good), count):
            self._write(name)

    def mend(self) -> None:
        for name in sorted(self.damaged):
            self._write(name)
        self.damaged.clear()

    def _write(self, name: str) -> None:
        rows = [self._random.randrange(1 << 40) for _ in range(self._random.randrange(4))]
        self._put(name, gzip.compress("".join(f"{json.dumps({'n': n})}\n" for n in rows).encode()))
        self.good[name] = rows
        self.landed += Counter((name, n) for n in rows)

    def _put(self, name: str, content: bytes) -> None:
        path = self.inbox / name
        path.parent.mkdir(exist_ok=True)
        temporary = self.inbox / f".{path.name}"
        temporary.write_bytes(content)
        temporary.replace(path)

    def expected(self) -> Counter[Row]:
        if self.mode == "append":
            return self.landed
        return Counter((name, n) for name, rows in self.good.items() for n in rows)

    def in_lake(self) -> Counter[Row]:
        return Counter((self._key(url), n) for url, n in self.select(f"SELECT object_url, n FROM {self.table}"))

    def rejects(self) -> Counter[str]:
        rejects = f"{self.table}__rejects"
        if not self.has_table(rejects):
            return Counter()
        return Counter(self._key(url) for (url,) in self.select(f"SELECT object FROM {rejects}"))

    def _key(self, url: str) -> str:
        return url.removeprefix(f"file://{self.inbox}/")

    def standings(self) -> Counter[str]:
        """How many objects there are of each standing."""
        with self.pipeline() as pipeline, pipeline.bookmarks() as bookmarks:
            return Counter({standing: objects for standing, (objects, _) in bookmarks.count().items() if objects})

    def check(self) -> None:
        assert self.in_lake() == self.expected()
        assert set(self.rejects()) == self.damaged
        expected = Counter({"landed": len(self.good), "aside": len(self.damaged)})
        assert self.standings() == +expected
