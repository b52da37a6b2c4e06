"""The exported snapshot of a copy: a temporary slot exports it, so that its LSN is known."""

from __future__ import annotations

import contextlib
import logging
import re
import select
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import pq

from headwater.model.errors import RunError, SourceUnreachable
from headwater.model.position.lsn import lsn_number
from headwater.model.secret import Secret, masked
from headwater.pg import sql_text
from headwater.pg.catalog import Role, Server, read_role, read_server
from headwater.pg.connection import Connection, PostgresSession, connect_replication, supported_session_sql, translated


@dataclass(frozen=True)
class Tuning:
    retry_seconds: tuple[float, ...] = (0.1, 0.5, 1.0, 2.0, 4.0)  # before each retry; a row that arrives resets them
    warn_seconds: float = 3.0  # the snapshot waits for open transactions: until the first warning
    repeat_seconds: float = 60.0  # until the next one


DEFAULT = Tuning()


# The snapshot has what committed before `lsn`, the WAL has the rest. It lives as long as its connection, which must send
# no other command: any would end it.

_log = logging.getLogger(__name__)
_FIRST_WITH_OPTIONS = 150_000  # PostgreSQL 15: the command takes options in brackets
_NAME = re.compile(r"[0-9A-Fa-f-]+")
_POINT, _SNAPSHOT = 1, 2  # columns of the command's answer
_MOMENT = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# The transaction of the snapshot is open and idle for as long as tables are copied. Older servers lack some of these.
_TIMEOUTS = (
    "statement_timeout", "lock_timeout", "transaction_timeout", "idle_session_timeout",
    "idle_in_transaction_session_timeout",
)  # fmt: skip


class CopySnapshot:
    """The constructor takes it, `close` ends it.

    The server waits until every transaction that writes has ended; `warn` gets a message that names the one it waits for.
    Raises SourceUnreachable, with the remedy, if the server refuses a slot, or still waits after `deadline_seconds`.
    """

    def __init__(
        self,
        url: Secret,
        *,
        warn: Callable[[str], None] = _log.warning,
        deadline_seconds: float | None = None,
        tuning: Tuning = DEFAULT,
    ) -> None:
        self._warn, self._tuning = warn, tuning
        self._session = PostgresSession(url)
        try:
            self._connection = _connect(url, self._session)
            try:
                self.name, self.lsn = self._take(deadline_seconds)
                ((self.moment,),) = self._session.fetch(_MOMENT)  # µs since 1970
            except BaseException:
                self._abort()
                raise
        finally:
            self._session.close()

    def is_alive(self) -> bool:
        """True if the connection looks open from this side: no command may test it."""
        connection = self._connection.pgconn
        if connection.status != pq.ConnStatus.OK:
            return False
        if select.select([connection.socket], [], [], 0)[0]:  # the server's last message, or its end
            try:
                connection.consume_input()
            except psycopg.OperationalError:
                return False
        return connection.status == pq.ConnStatus.OK

    def close(self) -> None:
        """The server drops the slot with its connection."""
        self._connection.close()

    def _abort(self) -> None:
        with contextlib.suppress(psycopg.Error):  # the connection may be broken
            self._connection.pgconn.get_cancel().cancel()  # else the server keeps waiting
        self._connection.close()

    def _take(self, deadline_seconds: float | None) -> tuple[str, int]:
        self._execute(supported_session_sql(dict.fromkeys(_TIMEOUTS, "0")))
        options = self._connection.info.server_version >= _FIRST_WITH_OPTIONS
        export = "(SNAPSHOT 'export')" if options else "EXPORT_SNAPSHOT"
        slot = f"hw_copy_{uuid.uuid4().hex[:16]}"
        command = f'CREATE_REPLICATION_SLOT "{slot}" TEMPORARY LOGICAL pgoutput {export}'
        pid = self._connection.info.backend_pid
        result = self._execute(command, _Wait(self._session, pid, self._warn, deadline_seconds, self._tuning))
        point, name = ((result.get_value(0, column) or b"").decode() for column in (_POINT, _SNAPSHOT))
        if not _NAME.fullmatch(name):
            raise RunError(f"{self._session.address}: unexpected snapshot name {name!r}")
        return name, lsn_number(point)

    def _execute(self, command: str, wait: _Wait | None = None) -> pq.abc.PGresult:
        """By the simple protocol, the only one of a replication connection."""
        connection = self._connection.pgconn
        try:
            connection.send_query(command.encode())
            while connection.is_busy():
                if select.select([connection.socket], [], [], wait.pause() if wait else None)[0]:
                    connection.consume_input()
                elif wait:
                    wait.check()
            result, _ = connection.get_result(), connection.get_result()
        except psycopg.OperationalError as error:
            raise refusal(self._session, str(error)) from None
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            raise refusal(self._session, result.get_error_message() if result else connection.get_error_message())
        return result


class _Wait:
    """Warns at intervals which transaction the slot waits for."""

    def __init__(
        self,
        session: PostgresSession,
        pid: int,
        warn: Callable[[str], None],
        deadline_seconds: float | None,
        tuning: Tuning,
    ) -> None:
        self._session, self._pid, self._warn, self._tuning = session, pid, warn, tuning
        now = time.monotonic()
        self._next = now + tuning.warn_seconds
        self._deadline = None if deadline_seconds is None else now + deadline_seconds

    def pause(self) -> float:
        until = self._next if self._deadline is None else min(self._next, self._deadline)
        return max(until - time.monotonic(), 0.01)

    def check(self) -> None:
        now = time.monotonic()
        late = self._deadline is not None and now >= self._deadline
        if not late and now < self._next:
            return
        self._next = now + self._tuning.repeat_seconds
        message = f"{self._session.address}: the initial copy still waits for its snapshot: {blocking_transaction(self._session, self._pid)}"
        if late:
            raise SourceUnreachable(message, hint="end that transaction, or wait for it and run again")
        self._warn(message)


def _connect(url: Secret, session: PostgresSession) -> Connection:
    try:
        return connect_replication(url)
    except psycopg.Error as error:
        raise refusal(session, str(error)) from None


def refusal(session: PostgresSession, message: str) -> SourceUnreachable:
    """The error for a refused slot or connection of a copy; `message` is the server's own."""
    with translated(session.address):
        server, (role, _) = read_server(session.connection), read_role(session.connection)
    why, hint = _reason(server, role) or (
        "the server refused a replication slot for the initial copy",
        "see the server's message; connect to the server directly, a pooler cannot replicate",
    )
    reason = masked(" ".join(message.split())).removeprefix("ERROR: ")
    return SourceUnreachable(f"{session.address}: {why} ({reason})", hint=hint)


def _reason(server: Server, role: Role) -> tuple[str, str] | None:
    if not role.may_replicate:
        grant = sql_text.allow_replication(role.name, rds=server.service == "rds")
        return f"role {role.name} may not replicate", f"a superuser can allow it: {grant}"
    if server.wal_level != "logical":
        change = "ALTER SYSTEM SET wal_level = 'logical', then restart the server"
        return f"wal_level is {server.wal_level}, and change capture needs logical", change
    if server.slots_used >= server.slots_most:
        return (
            f"all {server.slots_most} replication slots are in use, and a copy needs one while it runs",
            "drop an unused slot (SELECT * FROM pg_replication_slots), or raise max_replication_slots",
        )
    if server.senders_used >= server.senders_most:
        return (
            f"all {server.senders_most} WAL senders are busy, and a copy needs one while it runs",
            "raise max_wal_senders, or end one of them (SELECT * FROM pg_stat_replication)",
        )
    return None


_BLOCKING = """
SELECT w.transactionid::text, p.gid, h.pid, a.usename::text, a.application_name, a.state,
    extract(epoch FROM clock_timestamp() - coalesce(p.prepared, a.xact_start))::bigint
FROM pg_locks w
LEFT JOIN pg_locks h ON h.locktype = 'transactionid' AND h.transactionid = w.transactionid AND h.granted
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = w.transactionid
WHERE w.pid = %s AND w.locktype = 'transactionid' AND NOT w.granted"""


def blocking_transaction(session: PostgresSession, pid: int) -> str:
    """A sentence, without the transaction's statement, which may hold values."""
    rows = session.fetch(_BLOCKING, [pid])
    if not rows:
        return "the server waits for transactions that were open to end (on a standby: for pg_log_standby_snapshot() on its primary)"
    xid, prepared, holder, role, application, state, seconds = rows[0]
    since = f", open for {seconds:,} s," if seconds is not None else ""
    if prepared is not None:
        return f"it waits for prepared transaction {prepared!r}{since} to be committed or rolled back"
    who = ", ".join(word for word in (f"role {role}" if role else "", application, state) if word)
    return f"it waits for transaction {xid} of session {holder} ({who}){since} to end"
