"""Java's packages, classes and static methods, each looked up once: Py4J asks the JVM anew at every mention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java(spark: SparkSession) -> Any:
    """The session's JVM."""
    return _names_of(spark._jvm)  # noqa: SLF001 - PySpark's own way there; it has no public name


@functools.lru_cache(maxsize=2)  # a session that ended takes its JVM's names with it
def _names_of(jvm: Any) -> _Names:
    return _Names(jvm)


class _Names:
    """What lies below a name."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage  # noqa: PLC0415 - needs pyspark

        found = getattr(self._found, name)
        if isinstance(found, JavaPackage | JavaClass):
            found = _Names(found)
        elif not isinstance(found, JavaMember):
            return found  # the value of a static field
        self.__dict__[name] = found
        return found

    def __call__(self, *arguments: Any) -> Any:
        """A new object of the class."""
        return self._found(*arguments)
