"""A folder of objects, what a ledger would say of them, and what splits make of them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headwater.config.sources.objects import ObjectsSourceSettings
from headwater.model.bookmarks import BOOKMARK_COLUMNS
from headwater.model.position.stream_state import StreamState
from headwater.model.rows import Reject, Split
from headwater.sources.objects.content import ReadSettings
from headwater.sources.objects.rows import plan_splits
from headwater.sources.objects.tuning import Tuning
from headwater.storage.container import ObjectChanged, ObjectGone, ObjectVersion

MODIFIED = 1_772_438_400_000_000  # 2026-03-02T08:00:00Z


@dataclass(frozen=True)
class FolderContainer:
    """The least that reading needs of a container."""

    folder: Path
    scheme: str = "file"

    @property
    def address(self) -> str:
        return f"{self.scheme}://{self.folder}/" if self.scheme == "file" else f"{self.scheme}://bucket/"

    def url(self, key: str) -> str:
        return self.address + key

    def listing(self, start_after: str | None = None) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def stat(self, key: str) -> ObjectVersion | None:
        file = self.folder / key
        return _version(key, file.read_bytes()) if file.exists() else None

    def fetch(self, version: ObjectVersion) -> bytes:
        now = self.stat(version.key)
        if now is None:
            raise ObjectGone("no such file")
        if now.etag != version.etag:
            raise ObjectChanged(f"now {now.etag}")
        return (self.folder / version.key).read_bytes()

    def fetch_range(self, version: ObjectVersion, start: int, end: int) -> bytes:
        return self.fetch(version)[start:end]


class ObjectFolder:
    """Objects are put here; `rows` reads all of them as one window."""

    def __init__(self, folder: Path, scheme: str = "file") -> None:
        self.container = FolderContainer(folder, scheme)
        self._listed: dict[str, ObjectVersion] = {}
        self.tries = 0
        self.tuning = Tuning()
        self.rejects: list[Reject] = []

    def put(self, key: str, content: bytes | str) -> None:
        data = content.encode() if isinstance(content, str) else content
        file = self.container.folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        self._listed[key] = _version(key, data)

    def pages(self) -> Iterator[pa.Table]:
        """As the ledger gives them, in two pages."""
        rows = [
            {
                "key": one.key,
                "etag": one.etag,
                "size": one.size,
                "modified": one.modified,
                "generation": 1,
                "state": "read",
                "earlier": False,
                "tries": self.tries,
                "reason": "",
                "retry_at": None,
                "run": "r",
            }
            for one in sorted(self._listed.values(), key=lambda one: one.key.encode())
        ]
        schema = pa.schema(list(BOOKMARK_COLUMNS.items()))
        half = len(rows) // 2
        return (pa.Table.from_pylist(some, schema) for some in (rows[:half], rows[half:]))

    def splits(self, columns: dict | None = None, **settings: object) -> tuple[Split, ...]:
        chosen = ObjectsSourceSettings(url=self.container.address, **settings)
        read_settings = ReadSettings.of(chosen, StreamState(columns=columns or {}), "things", self.tuning)
        return plan_splits(self.pages(), chosen, self.container, read_settings, 4)

    def rows(self, columns: dict | None = None, **settings: object) -> list[dict]:
        """Of all objects; rejects are in `rejects`."""
        return self.read(self.splits(columns, **settings))

    def read(self, splits: Sequence[Split]) -> list[dict]:
        self.rejects, rows = [], []
        for split in splits:
            sent = pickle.loads(pickle.dumps(split))  # noqa: S301 - as to a worker
            for batch in sent.read(self.rejects.append):
                batch.validate(full=True)
                assert batch.schema == sent.read_settings.schema
                assert batch.num_rows
                rows += batch.to_pylist()
        return rows

    def reasons(self) -> dict[tuple, str]:
        """What the rejects say, by object and row (None: the whole object)."""
        start = len(self.container.address)
        return {(str(r.location["object"])[start:], r.location.get("row")): r.reason for r in self.rejects}


def _version(key: str, data: bytes) -> ObjectVersion:
    return ObjectVersion(key, hashlib.md5(data).hexdigest(), len(data), MODIFIED)  # noqa: S324 - as S3 makes etags
