"""One connection to one SQLite file for planning."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.model.errors import HeadwaterError, InputError, SourceUnreachable, UnknownName

_BUSY_SECONDS = 30.0
_WORDS_OF_NAMES = ("no such table", "no such column")


class SqliteFile:
    """Opens when first needed; between `begin_view` and `end_view` all reads agree."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._inode: int | None = None

    def fetch(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._opened().execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._ours(error) from None

    def data_version(self) -> int:
        """Changes when another connection changed the file. A file that was replaced is opened anew."""
        if self._connection is not None and self._inode != _inode(self.path):
            self.close()
        return int(self.fetch("PRAGMA data_version")[0][0])

    def begin_view(self) -> None:
        self.end_view()
        self.fetch("BEGIN")
        self.fetch("SELECT count(*) FROM sqlite_master")  # the transaction begins with the first read

    def end_view(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._inode = _inode(self.path)
            self._connection = open_sqlite(self.path)
        return self._connection

    def _ours(self, error: sqlite3.Error) -> HeadwaterError:
        text = str(error)
        if any(words in text for words in _WORDS_OF_NAMES):
            return UnknownName(
                f"sqlite file {self.path}: {text}", hint="correct the name in table, query, cursor or where"
            )
        if isinstance(error, sqlite3.OperationalError) and ("syntax error" in text or "incomplete input" in text):
            return InputError(f"sqlite file {self.path}: {text}", hint="correct where or query")
        self.close()
        return unreachable(self.path, error)


def open_sqlite(path: str) -> sqlite3.Connection:
    """Read-only, so that a missing file is an error and nothing is ever created or changed."""
    try:
        uri = Path(path).absolute().as_uri() + "?mode=ro"
        # Autocommit: read transactions are begun and ended by hand.
        return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise unreachable(path, error) from None


def unreachable(path: str, error: sqlite3.Error) -> SourceUnreachable:
    missing = not Path(path).exists()
    return SourceUnreachable(
        f"sqlite file {path}: {'there is no such file' if missing else error}",
        hint="check url; a relative path is taken from the pipeline file's folder",
    )


def _inode(path: str) -> int | None:
    return Path(path).stat().st_ino if Path(path).exists() else None
