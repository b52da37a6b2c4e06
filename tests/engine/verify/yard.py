"""A database with one table, a pipeline over it into the lake, and hands that change either side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from headwater.api import Pipeline, Project
from headwater.config.load import load_project
from headwater.engine.result import CycleResult
from headwater.engine.verify.report import VerifyReport
from headwater.engine.verify.verify import VerifyRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Yard:
    """The source, the pipeline's folder, the table."""

    url: str
    folder: Path
    spark: SparkSession
    table: str
    source: dict[str, Any]
    sink: dict[str, Any] = field(default_factory=lambda: {"mode": "merge"})
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "headwater.yaml").write_text("progress: sqlite:///progress.db\n")
        settings = {
            "pipeline": "yard",
            "lease": "2s",
            "source": {"sql": {"url": self.url, **self.source}},
            "sinks": [{"iceberg": {"table": self.table, **self.sink}}],
            **self.more,
        }
        (self.folder / "yard.yaml").write_text(json.dumps(settings))

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement)

    def lake(self, statement: str) -> list[tuple]:
        return [tuple(row) for row in self.spark.sql(statement.format(t=self.table)).collect()]

    def open(self, faults=None) -> tuple[Project, Pipeline]:
        project = Project(load_project(self.folder), self.folder, spark=self.spark, faults=faults)
        return project, project.pipelines([self.folder / "yard.yaml"])[0]

    def run(self) -> CycleResult:
        project, pipeline = self.open()
        with project:
            result = pipeline.run_once()
        assert result.error is None, result.error
        return result

    def verify(self, **order: Any) -> VerifyReport:
        project, pipeline = self.open()
        with project:
            return pipeline.verify(VerifyRequest(**order))

    def repair(self, faults=None, **order: Any) -> VerifyReport:
        project, pipeline = self.open(faults)
        with project:
            return pipeline.verify(VerifyRequest(**order), repair=lambda _: True)

    def history(self) -> list:
        project, pipeline = self.open()
        with project:
            return list(pipeline.history(5))


def found(verified: VerifyReport, table: int = 0) -> dict[str, list]:
    """The keys that differ, by kind."""
    one = verified.tables[table]
    shown = one.examples(1_000_000)
    return {kind: sorted(tuple(key.values()) for key in keys) for kind, keys in shown.items() if keys}
