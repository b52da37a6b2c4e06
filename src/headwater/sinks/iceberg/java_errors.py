"""What the JVM raises, as our errors; translated once, where it crosses the border."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from headwater.model.errors import HeadwaterError, RunError, SinkUnreachable
from headwater.model.secret import masked

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
    """Somebody else committed to the table since we looked; nothing of ours was published."""


@contextmanager
def reaching(table: object, stale: Collection[str] = _STALE) -> Iterator[None]:
    """Every failure inside leaves as HeadMoved (the classes in `stale`), SinkUnreachable or RunError."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (HeadwaterError, HeadMoved):
        raise
    except (Py4JError, PySparkException) as error:
        classes, text = described(error)
        if any(name in stale for name in classes):
            raise HeadMoved(text) from error
        raise _translated(str(table), classes, text) from error
    except OSError as error:
        raise SinkUnreachable(
            f"{table}: {masked(str(error))}", hint="see whether the lake's storage is there and may be written"
        ) from error


def _translated(table: str, classes: list[str], text: str) -> HeadwaterError:
    if any(name in _UNREACHABLE for name in classes):
        return SinkUnreachable(
            f"{table}: {text}", hint="see whether the lake's catalog and storage are there and may be written"
        )
    return RunError(f"{table}: {text}")


def described(error: Exception) -> tuple[list[str], str]:
    """The simple names of the Java classes in the chain of causes, and the message of the first."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        first = masked(str(error)).strip().splitlines()
        return [type(error).__name__], (first or [type(error).__name__])[0][:500]
    classes: list[str] = []
    texts: list[str] = []
    while java is not None and len(classes) < 12:  # noqa: PLR2004 - a chain of causes that long is a circle
        classes.append(str(java.getClass().getSimpleName()))
        texts.append(str(java.getMessage() or ""))
        java = java.getCause()
    said = next((text for text in texts if text), "no message")
    return classes, f"{classes[0]}: {masked(said).splitlines()[0][:500]}"
