"""The snapshot that tables are copied in: exported by a temporary slot, so that its place in the log is known.

What committed before `lsn` is in the snapshot, all else comes from the log. It lives as long as its connection, which
must not say another word: any command would end it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import select
import time
import uuid
from collections.abc import Callable

import psycopg
from psycopg import conninfo, pq

from headwater.model.errors import RunError, SourceUnreachable
from headwater.model.lsn import lsn_number
from headwater.model.secret import Secret
from headwater.sources.postgres.copying.refusal import refused
from headwater.sources.postgres.copying.waiting import waited_for
from headwater.sources.sql.postgres_session import PostgresSession

_log = logging.getLogger(__name__)
_FIRST_WITH_OPTIONS = 150_000  # PostgreSQL 15: options of the command stand in brackets
_NAME = re.compile(r"[0-9A-Fa-f-]+")
_POINT, _SNAPSHOT = 1, 2  # columns of the command's answer
_MOMENT = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_QUIET_SECONDS, _AGAIN_SECONDS = 3.0, 60.0
# The transaction of the snapshot is open and idle for as long as tables are copied. Older servers lack some of these.
_ENDLESS = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',
    'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')"""
_KEEPALIVE = {"keepalives_idle": "60", "keepalives_interval": "20", "keepalives_count": "6"}


class CopySnapshot:
    """Taken by the constructor, gone after `close`.

    Taking it waits for every transaction that has begun to write to end; `say` is told which one it waits for. Raises
    SourceUnreachable, with the remedy, where no slot can be made, and when it still waits after `deadline_seconds`.
    """

    def __init__(
        self, url: Secret, *, say: Callable[[str], None] = _log.warning, deadline_seconds: float | None = None
    ) -> None:
        self._session = PostgresSession(url)
        try:
            self._connection = _replicating(url, self._session)
            try:
                self.name, self.lsn = self._taken(say, deadline_seconds)
                ((self.moment,),) = self._session.fetch(_MOMENT)  # µs since 1970
            except BaseException:
                self._give_up()
                raise
        finally:
            self._session.close()

    def alive(self) -> bool:
        """Whether the connection stands, as far as one can see from this side: nothing may be sent on it."""
        connection = self._connection.pgconn
        if connection.status != pq.ConnStatus.OK:
            return False
        if select.select([connection.socket], [], [], 0)[0]:  # the server's last words, or its end
            try:
                connection.consume_input()
            except psycopg.OperationalError:
                return False
        return connection.status == pq.ConnStatus.OK

    def close(self) -> None:
        """The slot goes with its connection."""
        self._connection.close()

    def _give_up(self) -> None:
        with contextlib.suppress(psycopg.Error):  # it may be cut off already
            self._connection.pgconn.get_cancel().cancel()  # else the server goes on waiting for nobody
        self._connection.close()

    def _taken(self, say: Callable[[str], None], deadline_seconds: float | None) -> tuple[str, int]:
        self._answer(_ENDLESS)
        options = self._connection.info.server_version >= _FIRST_WITH_OPTIONS
        export = "(SNAPSHOT 'export')" if options else "EXPORT_SNAPSHOT"
        slot = f"hw_copy_{uuid.uuid4().hex[:16]}"
        command = f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput {export}'
        made = self._answer(command, _Waiting(self._session, self._connection.info.backend_pid, say, deadline_seconds))
        point, name = ((made.get_value(0, column) or b"").decode() for column in (_POINT, _SNAPSHOT))
        if not _NAME.fullmatch(name):
            raise RunError(f"{self._session.address}: unexpected snapshot name {name!r}")
        return name, lsn_number(point)

    def _answer(self, command: str, waiting: _Waiting | None = None) -> pq.abc.PGresult:
        """By the simple protocol: a connection that replicates knows no other."""
        connection = self._connection.pgconn
        try:
            connection.send_query(command.encode())
            while connection.is_busy():
                if select.select([connection.socket], [], [], waiting.pause() if waiting else None)[0]:
                    connection.consume_input()
                elif waiting:
                    waiting.look()
            answer, _ = connection.get_result(), connection.get_result()
        except psycopg.OperationalError as error:
            raise refused(self._session, str(error)) from None
        if answer is None or answer.status != pq.ExecStatus.TUPLES_OK:
            raise refused(self._session, answer.get_error_message() if answer else connection.get_error_message())
        return answer


class _Waiting:
    """Tells, from time to time, what the slot still waits for."""

    def __init__(
        self, session: PostgresSession, pid: int, say: Callable[[str], None], deadline_seconds: float | None
    ) -> None:
        self._session, self._pid, self._say = session, pid, say
        now = time.monotonic()
        self._next = now + _QUIET_SECONDS
        self._deadline = None if deadline_seconds is None else now + deadline_seconds

    def pause(self) -> float:
        until = self._next if self._deadline is None else min(self._next, self._deadline)
        return max(until - time.monotonic(), 0.01)

    def look(self) -> None:
        now = time.monotonic()
        late = self._deadline is not None and now >= self._deadline
        if not late and now < self._next:
            return
        self._next = now + _AGAIN_SECONDS
        words = f"{self._session.address}: no snapshot to copy tables in yet: {waited_for(self._session, self._pid)}"
        if late:
            raise SourceUnreachable(words, hint="end that transaction, or wait for it and run again")
        self._say(words)


def _replicating(url: Secret, session: PostgresSession) -> psycopg.Connection:
    """With keepalives, unless the address has its own: it is silent for hours, and must not be forgotten on the way."""
    try:
        given = conninfo.conninfo_to_dict(url.reveal())
        address = conninfo.make_conninfo(**{**_KEEPALIVE, **given, "replication": "database"})  # type: ignore[arg-type]
        return psycopg.connect(address, autocommit=True, application_name="headwater", client_encoding="UTF8")
    except psycopg.Error as error:
        raise refused(session, str(error)) from None
