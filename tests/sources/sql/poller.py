"""A pipeline's source driven by hand: plan, read in this process, advance; no Spark, no store."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from headwater.config.pipeline import SourceSettings
from headwater.model.position.marks import Mark, mark_from_json
from headwater.model.position.window import Window
from headwater.model.protocols.source import Plan
from headwater.sources.open import SourceContext, open_source
from headwater.sources.sql.database import DEFAULT_TUNING, Tuning


class Poller:
    """Keeps the mark as a store would: as JSON."""

    def __init__(
        self, url: str, *, folder: Path = Path(), cores: int = 2, tuning: Tuning = DEFAULT_TUNING, **settings: object
    ) -> None:
        self.settings = SourceSettings.model_validate({"sql": {"url": url, **settings}})
        self.folder, self.cores, self.tuning = folder, cores, tuning
        self.source = open_source(self.settings, folder, cores, SourceContext(sql=tuning))
        self.mark: Mark | None = None
        self.warnings: list[str] = []
        self.plan: Plan | None = None

    def look(self) -> Window | None:
        self.plan = self.source.plan(self.mark)
        self.warnings += self.plan.warnings
        return self.plan.window

    def poll(self) -> list[dict]:
        """The rows of one cycle, over all streams."""
        return [row for rows in self.poll_streams().values() for row in rows]

    def poll_streams(self) -> dict[str, list[dict]]:
        window = self.look()
        if window is None:
            return {}
        rows = self.read(window)
        assert window.start is None or window.end.covers(window.start)
        self.mark = stored(window.end)
        return rows

    def read(self, window: Window) -> dict[str, list[dict]]:
        with self.source.read(stored_window(window)) as streams:
            return {rows.stream: table_of(rows).to_pylist() for rows in streams}

    def table(self) -> pa.Table:
        window = self.look()
        assert window is not None
        with self.source.read(window) as (rows,):
            self.mark = stored(window.end)
            return table_of(rows)

    def in_another_process(self, tuning: Tuning | None = None) -> Poller:
        """A fresh source, as the process that recovers would have."""
        other = Poller.__new__(Poller)
        other.settings, other.folder, other.cores = self.settings, self.folder, self.cores
        other.tuning = tuning or self.tuning
        other.source = open_source(self.settings, self.folder, self.cores, SourceContext(sql=other.tuning))
        other.mark, other.warnings, other.plan = self.mark, [], None
        return other

    def close(self) -> None:
        self.source.close()


def table_of(rows) -> pa.Table:
    batches = [batch for split in rows.splits for batch in pickle.loads(pickle.dumps(split)).read()]  # noqa: S301
    return pa.Table.from_batches(batches, schema=rows.schema)


def stored(mark: Mark) -> Mark:
    return mark_from_json(mark.to_json())


def stored_window(window: Window) -> Window:
    return Window.from_json(window.to_json())


def column(rows: list[dict] | Mapping, name: str) -> list:
    return sorted(row[name] for row in rows)
