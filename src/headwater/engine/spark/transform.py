"""A pipeline's transform: Spark SQL over `rows`, or a Python function from DataFrame to DataFrame.

Lazy: no job runs before a sink reads. A Python function must stay lazy too, and must return the same rows for
the same window: a retry calls it again. Its module is loaded from the pipeline's folder once per process
and pickled by value for Spark's workers, with the modules beside it, so UDFs need nothing installed there.
"""

from __future__ import annotations

import importlib
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headwater.config.pipeline import PythonTransformSettings
from headwater.model.errors import TransformFailed
from headwater.model.rows import CHANGE_COLUMNS, Changes, Rows
from headwater.model.secret import masked
from headwater.model.spark.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MAX_REASON_LENGTH = 400


def apply_transform(
    rows: Rows, transform: str | PythonTransformSettings, folder: Path, spark: Callable[[], SparkSession]
) -> Rows:
    """The rows after the transform, which only Spark can read; `folder` is the pipeline file's.

    Spark analyses the transform here, for the columns; no job runs. A sink refuses rows that lack a column it needs.
    """
    frame = _TransformedFrame(rows, transform, folder)
    schema = arrow_schema(frame(spark()).schema)

    def if_complete(columns: tuple[str, ...]) -> tuple[str, ...]:
        return columns if set(columns) <= set(schema.names) else ()

    changes = rows.changes
    if changes:
        change_columns = {*CHANGE_COLUMNS, *(name for name in rows.schema.names if name not in changes.table_columns)}
        changes = Changes(
            table_columns=tuple(name for name in schema.names if name not in change_columns),
            event_key=if_complete(changes.event_key),
            arrival=changes.arrival if changes.arrival in schema.names else "",
            dropped=tuple(name for name in (*CHANGE_COLUMNS, *rows.key) if name not in schema.names),
        )
    return replace(
        rows,
        schema=schema,
        key=if_complete(rows.key),
        order=if_complete(rows.order),
        splits=None,
        frame=frame,
        changes=changes,
    )


class _TransformedFrame:
    """Built once per session: the user's function is called once per window, however many sinks there are."""

    def __init__(self, rows: Rows, transform: str | PythonTransformSettings, folder: Path) -> None:
        self._rows, self._transform, self._folder = rows, transform, folder
        self._cached: tuple[SparkSession, DataFrame] | None = None

    def __call__(self, spark: SparkSession) -> DataFrame:
        if self._cached is None or self._cached[0] is not spark:
            self._cached = (spark, self._build(spark))
        return self._cached[1]

    def _build(self, spark: SparkSession) -> DataFrame:
        frame, stream = self._rows.dataframe(spark), self._rows.stream
        if isinstance(self._transform, PythonTransformSettings):
            return _apply_function(frame, self._transform.python, self._folder, stream)
        return _apply_sql(frame, self._transform, spark, stream)


def _apply_sql(frame: DataFrame, text: str, spark: SparkSession, stream: str) -> DataFrame:
    from pyspark.errors import PySparkException

    # The view's name is unique, so pipelines in other threads never see it; `rows` is a name only inside
    # this query. The parentheses admit a query only: a transform cannot change a table.
    view = f"headwater_rows_{uuid.uuid4().hex}"
    query = text.strip().rstrip(";")
    frame.createTempView(view)
    try:
        return spark.sql(f"WITH rows AS (SELECT * FROM {view}) SELECT * FROM ({query}\n)")  # noqa: S608 - the user's own
    except PySparkException as error:
        raise TransformFailed(
            f"Spark cannot parse or resolve the transform of {stream}: {_first_line(error).replace(view, 'rows')}",
            hint=f"rows has the columns {', '.join(frame.columns)}",
        ) from error
    finally:
        spark.catalog.dropTempView(view)


def _apply_function(frame: DataFrame, reference: str, folder: Path, stream: str) -> DataFrame:
    from pyspark.sql import DataFrame

    function = load_function(reference, folder)
    try:
        with imports_from(folder), sent_by_value(folder):
            result = function(frame)
            if isinstance(result, DataFrame):
                result.schema  # noqa: B018 - Spark's analysis happens here, and so do its errors
                return result
    except Exception as error:
        raise TransformFailed(
            f"the transform {reference} failed on {stream}: {type(error).__name__}: {_first_line(error)}",
            hint=f"it got the columns {', '.join(frame.columns)}",
        ) from error
    raise TransformFailed(
        f"the transform {reference} returned {type(result).__name__} for {stream}, not a DataFrame",
        hint="end it with: return df",
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    line = re.sub(r"\s*SQLSTATE: \w+.*$", "", lines[0]) if lines else "no reason given"
    return masked(line)[:_MAX_REASON_LENGTH]


_lock = threading.RLock()  # the import system is the process's own
_loaded: dict[tuple[Path, str], Callable[[Any], Any]] = {}
_modules: dict[Path, dict[str, ModuleType]] = {}


def load_function(reference: str, folder: Path) -> Callable[[Any], Any]:
    """The function of `package.module:function`, loaded once per process. Raises TransformFailed."""
    module_name, _, name = reference.partition(":")
    with _lock:
        cached = _loaded.get((folder.resolve(), reference))
        if cached is not None:
            return cached
        try:
            with imports_from(folder):
                module = importlib.import_module(module_name)
        except Exception as error:
            raise TransformFailed(
                f"the transform {reference} cannot be loaded: {type(error).__name__}: {masked(str(error))}",
                hint=f"expected a module {module_name} in {folder} or among the installed packages",
            ) from error
        function: Callable[[Any], Any] | None = getattr(module, name, None)
        if not callable(function):
            raise TransformFailed(
                f"the module {module_name} has no function {name}", hint=f"define in {module.__file__}: def {name}(df)"
            )
        _loaded[(folder.resolve(), reference)] = function
        return function


@contextmanager
def imports_from(folder: Path) -> Iterator[None]:
    """Modules of `folder` can be imported inside the block only."""
    folder = folder.resolve()
    with _lock:
        own = _modules.setdefault(folder, {})
        # A module of the same name from elsewhere is removed during the block, and restored.
        others = {name: module for name, module in _same_names(folder).items() if not _is_in(folder, name, module)}
        for name in others:
            del sys.modules[name]
        before = set(sys.modules)
        sys.modules.update(own)
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(folder))
            for name, module in _same_names(folder).items():
                if name not in before and _is_in(folder, name, module):
                    own[name] = module
                    del sys.modules[name]
            sys.modules.update(others)


@contextmanager
def sent_by_value(folder: Path) -> Iterator[None]:
    """Inside `imports_from`: pickle UDFs with their modules, which are not installed on Spark's workers."""
    from pyspark import cloudpickle

    modules = list(_modules[folder.resolve()].values())
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _same_names(folder: Path) -> dict[str, ModuleType]:
    """The loaded modules that have the name of one in the folder."""
    tops = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    tops.discard("__main__")
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in tops}


def _is_in(folder: Path, name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    top, path = name.partition(".")[0], Path(file).resolve()
    return path == folder / f"{top}.py" or path.is_relative_to(folder / top)
