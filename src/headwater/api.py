"""Headwater in Python; the command line is built on it.

import headwater as hw
hw.run_once("orders.yaml")
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from pydantic import ValidationError

from headwater.config.load import load_pipelines, load_project
from headwater.config.pipeline import PipelineSettings, SourceSettings
from headwater.config.project import ProjectSettings
from headwater.engine.cycle import run_cycle
from headwater.engine.journal import Journal, open_journal
from headwater.engine.operations.python_window import PythonWindow, python_window
from headwater.engine.pipeline import LazySinks, OpenPipeline
from headwater.engine.rejects.landing import PipelineRejects
from headwater.engine.result import CycleResult, Log, NullLog
from headwater.engine.runner import Report, ScheduledPipeline, run_all
from headwater.engine.spark.session import SessionHolder
from headwater.model.bookmarks import BookmarkAdmin, HasLedger, no_ledger
from headwater.model.errors import InputError, SettingsError
from headwater.model.faults import Faults, faults_from
from headwater.model.position.marks import Mark
from headwater.model.progress import HistoryEntry, Progress
from headwater.model.protocols.lake import LakeSink
from headwater.model.protocols.sink import Sink
from headwater.model.protocols.source import Lag, MeasuresLag, Plan, Source
from headwater.model.protocols.store import Store
from headwater.model.secret import Secret
from headwater.progress import open as progress_stores
from headwater.services.jars import ensure_jars
from headwater.sources import open as sources
from headwater.sources.open import SourceContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.engine.labels import WrittenLabel
    from headwater.engine.operations.bookmarks import PipelineBookmarks
    from headwater.engine.operations.rebuild import Rebuilt
    from headwater.engine.operations.replay import Replayed
    from headwater.engine.rejects.table import StoredReject
    from headwater.engine.verify.report import VerifyReport
    from headwater.engine.verify.verify import VerifyRequest


def whoami() -> str:
    """user@host/pid: who holds a lease, and who rewound."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}/{os.getpid()}"


class Project:
    """Everything that pipelines share: settings, the progress store, the Spark session."""

    def __init__(
        self,
        settings: ProjectSettings,
        folder: Path,
        *,
        spark: SparkSession | None = None,
        log: Log | None = None,
        say: Callable[[str], None] = lambda _: None,
        out: TextIO | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.settings, self.folder = settings, folder
        self.log = log or NullLog()
        self.out = out or sys.stdout
        self.faults = faults or faults_from(os.environ)
        self.session = SessionHolder(settings, folder, lambda: ensure_jars(say), session=spark)
        self.store = progress_stores.open_store(settings.progress_levels, folder)

    @classmethod
    def open(cls, folder: Path, *, overrides: Mapping[str, str] | None = None, **options: object) -> Project:
        """The project of `folder`, with its headwater.yaml if there is one."""
        return cls(load_project(folder, overrides=overrides or {}), folder, **options)  # type: ignore[arg-type]

    def pipeline(self, settings: PipelineSettings, folder: Path | None = None) -> Pipeline:
        """A pipeline of this project; paths in its settings are relative to `folder`."""
        return Pipeline(self, settings, folder or self.folder)

    def pipelines(self, paths: Sequence[Path]) -> Sequence[Pipeline]:
        """The pipelines of files and folders."""
        return [self.pipeline(loaded.settings, loaded.folder.absolute()) for loaded in load_pipelines(paths)]

    def close(self) -> None:
        self.session.stop()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class MergeExplanation:
    """How a cycle would write a stream's rows into a table."""

    sink: str
    table: str
    way: str
    why: str


class Pipeline:
    """One declared flow, ready to run."""

    def __init__(self, project: Project, settings: PipelineSettings, folder: Path) -> None:
        self.project, self.settings, self.folder = project, settings, folder
        self.name = settings.pipeline

    def run_once(self) -> CycleResult:
        """One cycle. A failure is a result, not an exception."""
        with self.opened() as pipeline:
            return run_cycle(pipeline)

    def plan(self) -> Plan:
        """What the next cycle would read. Changes nothing, needs no lease."""
        progress = self.progress()
        with self._source() as source:
            paused = frozenset(stream.stream for stream in progress.paused if stream.window)
            return source.plan(progress.mark, skip=paused)

    def explain_merge(self, planned: Plan) -> Sequence[MergeExplanation]:
        """Which merge strategy each table of the plan would use. Starts a session."""
        with self.opened() as pipeline:
            return [
                MergeExplanation(sink.id, sink.table_name(stream.stream), explanation.strategy, explanation.why)
                for sink in pipeline.sinks()
                if isinstance(sink, LakeSink)
                for stream in planned.streams
                if (explanation := sink.explain_merge(pipeline.spark(), stream.stream, stream.rows))
            ]

    def progress(self) -> Progress:
        return self.project.store.load(self.name)

    def lag(self) -> Sequence[Lag] | None:
        """How far the mark is behind the source; None where the source cannot say."""
        with self._source() as source:
            return source.lag(self.progress().mark) if isinstance(source, MeasuresLag) else None

    def history(self, limit: int = 20) -> Sequence[HistoryEntry]:
        return self.project.store.history(self.name, limit)

    def rewind(
        self,
        to: str | None,
        *,
        why: str,
        who: str | None = None,
        rebuild: Callable[[Sequence[Rebuilt]], bool] | None = None,
    ) -> Progress:
        """Move the mark to where the operator says, back or forth, on record (G3). Does not wait: raises LeaseHeld.

        With `rebuild`, tables of changes are built again from their log, up to that mark (None: the present one).
        `rebuild` receives the differences and returns whether to publish them. Only then the mark moves.
        """
        if not why.strip():
            raise InputError(
                f"{self.name}: a rewind needs a reason", hint="say why: --why 'restored the table from backup'"
            )
        with (
            self._source() as source,
            open_journal(self.project.store, self.name, who or whoami(), self._lease_seconds) as journal,
        ):
            target = journal.mark if to is None else source.position(to, journal.mark)
            if rebuild is None or self._rebuild(journal, target, rebuild):
                journal.rewind(target, why)
            return journal.progress

    def _rebuild(self, journal: Journal, mark: Mark | None, confirm: Callable[[Sequence[Rebuilt]], bool]) -> bool:
        from headwater.engine.operations.rebuild import rebuild

        if mark is None:
            raise InputError(f"{self.name}: cannot rebuild to before the first window", hint="pass --to POSITION")
        with self.opened() as pipeline:
            return rebuild(pipeline, journal, mark, confirm)

    def label(self, text: str) -> WrittenLabel:
        """Write a label into the source's log: when it has landed, every table has a tag. Starts a session."""
        from headwater.engine.labels import write_label

        with self.opened() as pipeline:
            return write_label(pipeline, self.progress().mark, text)

    def ledger(self) -> BookmarkAdmin:
        """The bookmarks of a source of objects."""
        return _ledger(self.project.store, self.name)

    @contextmanager
    def bookmarks(self) -> Iterator[PipelineBookmarks]:
        """The bookmarks of a source of objects, to read and to change."""
        from headwater.engine.operations.bookmarks import PipelineBookmarks
        from headwater.sources.objects.source import ObjectsSource

        with self._source() as source:
            if not isinstance(source, ObjectsSource):
                raise InputError(
                    f"{self.name}: only a source of objects has bookmarks",
                    hint=f"its mark says how far it is read: headwater marks {self.name}",
                )
            yield PipelineBookmarks(
                self.name, source, self.ledger(), self.project.store, owner=whoami(), lease_seconds=self._lease_seconds
            )

    def rejects(self) -> Sequence[StoredReject]:
        """The rejects that have not landed since, oldest first."""
        from headwater.engine.rejects.table import stored_rejects

        return stored_rejects(self.project.session.for_pipeline(self.name), self._reject_sink(), self.name)

    def replay(self, rejects: Sequence[StoredReject]) -> Replayed:
        """Try rejects again under the present settings; those that land leave the rejects table."""
        from headwater.engine.operations.replay import replay

        with self.opened() as pipeline:
            return replay(pipeline, rejects)

    def verify(
        self, order: VerifyRequest | None = None, *, repair: Callable[[VerifyReport], bool] | None = None
    ) -> VerifyReport:
        """Compare the pipeline's tables with its source, row for row, while both keep changing.

        `repair` receives the differences and returns whether to repair them.
        """
        from headwater.engine.verify.verify import VerifyRequest, verify

        with self.opened() as pipeline, self._source() as source:
            return verify(pipeline, source, order or VerifyRequest(), repair)

    def scheduled(self) -> ScheduledPipeline:
        return ScheduledPipeline(self.open(), self.settings.every, self.settings.jitter)

    @contextmanager
    def opened(self) -> Iterator[OpenPipeline]:
        pipeline = self.open()
        try:
            yield pipeline
        finally:
            pipeline.close()

    def open(self) -> OpenPipeline:
        """The pipeline for a cycle, with open source and sinks; the caller closes it."""
        project = self.project

        def spark() -> SparkSession:
            return project.session.for_pipeline(self.name)

        return OpenPipeline(
            name=self.name,
            source=self._open_source(),
            transform=self.settings.transform,
            sinks=LazySinks(self._sinks),
            rejects=PipelineRejects(self._reject_sink, self.settings.max_rejects, spark),
            store=project.store,
            spark=spark,
            folder=self.folder,
            owner=whoami(),
            lease_seconds=self._lease_seconds,
            faults=project.faults,
            log=project.log,
        )

    @property
    def _lease_seconds(self) -> float:
        return self.settings.lease.total_seconds()

    def _sinks(self) -> Sequence[Sink]:
        from headwater.sinks.open import SinkContext, open_sink

        context = SinkContext(self.folder, self.project.out, self.project.settings.s3)
        return [
            open_sink(settings, position, context) for position, settings in enumerate(self.settings.sinks, start=1)
        ]

    def _reject_sink(self) -> LakeSink:
        from headwater.sinks.open import open_reject_sink

        return open_reject_sink(self.settings.rejects_table)

    def _open_source(self) -> Source:
        session = self.project.session
        context = SourceContext(
            spark=lambda: session.for_pipeline(self.name), ledger=self.ledger, s3=self.project.settings.s3
        )
        return sources.open_source(self.settings.source, self.folder, os.cpu_count() or 1, context)

    @contextmanager
    def _source(self) -> Iterator[Source]:
        source = self._open_source()
        try:
            yield source
        finally:
            source.close()


def run_once(pipeline: str | Path | Pipeline, *, spark: SparkSession | None = None) -> CycleResult:
    """One cycle of a pipeline file, or of a Pipeline built in code. Raises the error of a failed cycle."""
    if isinstance(pipeline, Pipeline):
        result = pipeline.run_once()
    else:
        path = Path(pipeline)
        with Project.open(path.resolve().parent, spark=spark) as project:
            loaded = project.pipelines([path])
            if len(loaded) != 1:
                raise InputError(
                    f"{path} holds {len(loaded)} pipelines", hint="run_once takes a file with one pipeline"
                )
            result = loaded[0].run_once()
    if result.error:
        raise result.error
    return result


def open_source(
    settings: Mapping[str, object],
    *,
    folder: Path | None = None,
    spark: SparkSession | None = None,
    store: Store | None = None,
    name: str = "",
) -> Source:
    """A source without a pipeline, from the settings of a pipeline file: `{"sql": {"url": …, "table": …, "cursor": …}}`.

    `spark`: the session that reads databases behind a JDBC driver. `store` and `name`: where bookmarks of objects
    are stored, and under which pipeline's name; the same as for `window`.
    """
    try:
        checked = SourceSettings.model_validate(settings)
    except ValidationError as error:
        # The values stay out: an address may hold a password (G11).
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors(include_input=False)
        ]
        raise SettingsError(f"the source's settings cannot be used: {'; '.join(problems)}") from None
    context = SourceContext(
        spark=None if spark is None else lambda: spark,
        ledger=None if store is None else lambda: _ledger(store, name),
    )
    return sources.open_source(checked, folder or Path.cwd(), os.cpu_count() or 1, context)


def _ledger(store: Store, name: str) -> BookmarkAdmin:
    if not isinstance(store, HasLedger):
        raise no_ledger(store.address)
    return store.ledger(name)


def open_store(*addresses: str, folder: Path | None = None) -> Store:
    """A progress store by its address, as in headwater.yaml; of several levels the last one decides."""
    return progress_stores.open_store([Secret(address) for address in addresses], folder or Path.cwd())


def run_forever(pipelines: Sequence[Pipeline], stop: threading.Event, report: Report) -> Sequence[CycleResult]:
    """Run every pipeline by its schedule until `stop` is set; return each one's last result."""
    return run_all([pipeline.scheduled() for pipeline in pipelines], stop, report)


@contextmanager
def window(source: Source, store: Store, *, name: str) -> Iterator[PythonWindow]:
    """Your Spark code, our mark: it moves only if the block succeeds."""
    with python_window(source, store, name=name, owner=whoami()) as block:
        yield block
