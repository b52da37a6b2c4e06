"""A connection that belongs to one process: a fork must neither use nor close its parent's."""

from __future__ import annotations

import os
from typing import Generic, Protocol, TypeVar


class Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closes)

# Connections of parents. Python would close them if nothing held them here.
_INHERITED: list[object] = []


class OwnConnection(Generic[C]):
    """At most one connection, opened by this process."""

    def __init__(self) -> None:
        self._connection: C | None = None
        self._opened_by = 0

    def get(self) -> C | None:
        if self._connection is not None and self._opened_by != os.getpid():
            _INHERITED.append(self._connection)
            self._connection = None
        return self._connection

    def keep(self, connection: C) -> C:
        self.close()
        self._connection, self._opened_by = connection, os.getpid()
        return connection

    def close(self) -> None:
        connection = self.get()
        self._connection = None
        if connection is not None:
            connection.close()
