"""Errors of the JVM, translated once into Headwater's; and cached access to its classes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.model.errors import HeadwaterError, RunError, SinkUnreachable
from headwater.model.secret import masked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNREACHABLE = (
    "SQLException",
    "SQLiteException",
    "UncheckedSQLException",
    "RuntimeIOException",
    "UncheckedIOException",
    "IOException",
    "FileNotFoundException",
    "AccessDeniedException",
    "NotFoundException",
    "ServiceFailureException",
    "ServiceUnavailableException",
    "RESTException",
    "NotAuthorizedException",
    "ForbiddenException",
    "ConnectException",
    "UnknownHostException",
    "SocketException",
    "CommitStateUnknownException",
)
_STALE = ("CommitFailedException",)


class HeadMoved(Exception):
    """Another writer committed to the table since it was read; nothing of ours was published."""


@contextmanager
def reaching(table: object, stale: Collection[str] = _STALE) -> Iterator[None]:
    """Translate every failure inside to HeadMoved (the classes in `stale`), SinkUnreachable or RunError."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (HeadwaterError, HeadMoved):
        raise
    except (Py4JError, PySparkException) as error:
        classes, text = describe_error(error)
        if any(name in stale for name in classes):
            raise HeadMoved(text) from error
        raise _translate(str(table), classes, text) from error
    except OSError as error:
        raise SinkUnreachable(
            f"{table}: {masked(str(error))}", hint="check that the lake's storage is reachable and writable"
        ) from error


def _translate(table: str, classes: list[str], text: str) -> HeadwaterError:
    if any(name in _UNREACHABLE for name in classes):
        return SinkUnreachable(
            f"{table}: {text}", hint="check that the lake's catalog and storage are reachable and writable"
        )
    return RunError(f"{table}: {text}")


def describe_error(error: Exception) -> tuple[list[str], str]:
    """The simple names of the Java classes in the chain of causes, and the message of the first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        lines = masked(str(error)).strip().splitlines()
        return [type(error).__name__], (lines or [type(error).__name__])[0][:500]
    classes: list[str] = []
    texts: list[str] = []
    while java is not None and len(classes) < 12:  # noqa: PLR2004 - a longer chain of causes is a circle
        classes.append(str(java.getClass().getSimpleName()))
        texts.append(str(java.getMessage() or ""))
        java = java.getCause()
    message = next((text for text in texts if text), "no message")
    return classes, f"{classes[0]}: {masked(message).splitlines()[0][:500]}"


def java(spark: SparkSession) -> Any:
    """The session's JVM."""
    return _names_of(spark._jvm)  # noqa: SLF001 - PySpark has no public name for it


@functools.lru_cache(maxsize=2)  # a session that ended takes its JVM's names with it
def _names_of(jvm: Any) -> _Names:
    return _Names(jvm)


class _Names:
    """A package or class of the JVM, with its members cached: each lookup by py4j is a call."""

    def __init__(self, member: Any) -> None:
        self._member = member

    def __getattr__(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass, JavaMember, JavaPackage

        member = getattr(self._member, name)
        if isinstance(member, JavaPackage | JavaClass):
            member = _Names(member)
        elif not isinstance(member, JavaMember):
            return member  # the value of a static field
        self.__dict__[name] = member
        return member

    def __call__(self, *arguments: Any) -> Any:
        """A new object of the class."""
        return self._member(*arguments)


def is_class(member: Any) -> bool:
    """False: the JVM has no class by that name, so that py4j takes it for a package."""
    from py4j.java_gateway import JavaClass

    return isinstance(vars(member).get("_member"), JavaClass)
