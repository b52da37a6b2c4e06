"""A watched container driven by hand: stage, look at what a window holds, move the mark. And notifications to write."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa

from headwater.config.project import S3Settings
from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.position.marks import Mark, ObjectsMark, mark_from_json
from headwater.model.protocols.source import Claim, Plan
from headwater.sources.objects.notifications.poller import open_feed
from headwater.sources.objects.source import ObjectsSource
from headwater.sources.objects.tuning import Tuning
from headwater.storage.container import Container, ObjectVersion
from headwater.storage.open import open_container
from tests.sources.objects.ledger import PipelineLedger


@dataclass
class CountingContainer:
    """A container that counts how it is asked."""

    real: Container
    listings: int = 0
    stats: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.real.address

    def url(self, key: str) -> str:
        return self.real.url(key)

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        self.listings += 1
        return self.real.listing(start_after)

    def stat(self, key: str) -> ObjectVersion | None:
        self.stats.append(key)
        return self.real.stat(key)

    def without_min_age(self) -> Container:
        return self.real.without_min_age()

    def fetch(self, version: ObjectVersion) -> bytes:
        return self.real.fetch(version)

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        return self.real.fetch_range(version, start, end)


class ObjectsPipeline:
    """One pipeline's source, ledger and mark. The mark is kept as a store keeps it: as JSON."""

    def __init__(
        self, folder: Path, s3: S3Settings | None = None, tuning: Tuning | None = None, **settings: Any
    ) -> None:
        self.tuning = tuning or Tuning()
        self.settings = ObjectsSourceSettings(**settings)
        self.folder, self._s3 = folder, s3 or S3Settings()
        self.book = PipelineLedger(folder)
        self.mark: Mark | None = None
        self.ahead = dt.timedelta()  # how far the source's clock is before ours
        self.plan = Plan(None)
        self.restart()

    def restart(self) -> None:
        """As another process would begin: with the mark and the ledger alone."""
        self.container = CountingContainer(open_container(self.settings, self.folder, self._s3))
        clock = lambda: dt.datetime.now(dt.UTC) + self.ahead  # noqa: E731
        poller = open_feed(self.settings, self.container, self.folder, self._s3, clock=clock, tuning=self.tuning)
        self.source = ObjectsSource(
            self.settings, self.container, lambda: self.book.ledger, poller, cores=2, tuning=self.tuning
        )

    def cycle(self, *, crash: bool = False) -> list[str]:
        """The keys that one cycle reads, and `-key` for those that are gone. A crash comes before the mark has moved."""
        self.plan = self.source.plan(self.mark, claim=Claim(self.book.lease, "run"))
        if self.plan.window is None or crash:
            return []
        start = self.mark.generation if isinstance(self.mark, ObjectsMark) else 0
        self.mark = mark_from_json(json.loads(json.dumps(self.plan.window.end.to_json())))
        pages = self.book.ledger.window(start, self.mark.generation)
        return [f"{'-' if row['state'] == 'gone' else ''}{row['key']}" for page in pages for row in page.to_pylist()]

    def cycles(self) -> list[str]:
        """Until nothing moves any more."""
        keys: list[str] = []
        while True:
            keys += self.cycle()
            if self.plan.window is None:
                return keys

    def bookmarks(self) -> dict[str, tuple[str, int, int, str]]:
        rows = self.book.ledger.between([("", None)]).to_pylist()
        return {row["key"]: (row["etag"], row["size"], row["modified"], row["state"]) for row in rows}

    @property
    def position(self) -> Any:
        assert isinstance(self.mark, ObjectsMark)
        return self.mark.feed["position"]


def record(bucket: str, key: str, name: str = "ObjectCreated:Put", **more: Any) -> dict[str, Any]:
    """As S3 writes it."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventTime": dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z"),
        "eventName": name,
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {"key": quote_plus(key, safe="/"), "size": 1, "eTag": "e", "sequencer": "0"},
        },
        **more,
    }


def notification(*records: Mapping[str, Any]) -> str:
    return json.dumps({"Records": records})
