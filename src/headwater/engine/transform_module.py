"""User code from a pipeline's folder, loaded without leaving a trace in this process.

Two folders may each have a `transforms.py`, so modules from a folder are taken out of `sys.modules` again.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from headwater.model.errors import TransformFailed
from headwater.model.secret import masked

_lock = threading.RLock()  # the import system is the process's own
_loaded: dict[tuple[Path, str], Callable[[Any], Any]] = {}
_modules: dict[Path, dict[str, ModuleType]] = {}


def load_function(reference: str, folder: Path) -> Callable[[Any], Any]:
    """The function of `package.module:function`, loaded once per process. Raises TransformFailed."""
    module_name, _, name = reference.partition(":")
    with _lock:
        known = _loaded.get((folder.resolve(), reference))
        if known is not None:
            return known
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
    """Inside, modules of `folder` can be imported; outside, nobody sees them."""
    folder = folder.resolve()
    with _lock:
        own = _modules.setdefault(folder, {})
        # A module of the same name from elsewhere steps aside, and comes back.
        others = {
            name: module for name, module in _of_these_names(folder).items() if not _lives_in(folder, name, module)
        }
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
            for name, module in _of_these_names(folder).items():
                if name not in before and _lives_in(folder, name, module):
                    own[name] = module
                    del sys.modules[name]
            sys.modules.update(others)


@contextmanager
def sent_by_value(folder: Path) -> Iterator[None]:
    """Inside `imports_from`: UDFs travel to Spark's workers with their modules, which are not installed there."""
    from pyspark import cloudpickle  # noqa: PLC0415 - only where Spark runs

    modules = list(_modules[folder.resolve()].values())
    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _of_these_names(folder: Path) -> dict[str, ModuleType]:
    """The loaded modules that have the name of one in the folder."""
    tops = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    tops.discard("__main__")
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in tops}


def _lives_in(folder: Path, name: str, module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    top, path = name.partition(".")[0], Path(file).resolve()
    return path == folder / f"{top}.py" or path.is_relative_to(folder / top)
