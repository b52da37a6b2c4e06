"""Connections of sources and services to PostgreSQL: session settings, one consistent view, the server's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import psycopg
from psycopg import conninfo

from headwater.model.errors import HeadwaterError, InputError, RunError, SourceChanged, SourceUnreachable, UnknownName
from headwater.model.secret import Secret, masked

Connection = psycopg.Connection[tuple[Any, ...]]

# Every session, here and on executors: texts of values must not depend on a server's or a role's defaults.
SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "standard_conforming_strings": "on",
    "idle_in_transaction_session_timeout": "0",
}
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# A replication connection is silent for hours; a firewall must not drop it meanwhile.
_KEEPALIVES = {"keepalives_idle": "60", "keepalives_interval": "20", "keepalives_count": "6"}


def connect(address: Secret) -> Connection:
    """A new connection in autocommit mode; `SESSION` is not set yet. Raises psycopg's errors."""
    return psycopg.connect(
        address.reveal(),
        autocommit=True,
        prepare_threshold=None,  # behind a pooler each transaction may run in another server session
        application_name="headwater",
        client_encoding="UTF8",
    )


def connect_replication(address: Secret) -> Connection:
    """A connection that also takes replication commands. Keepalives of the address override ours."""
    parameters = {**_KEEPALIVES, **conninfo.conninfo_to_dict(address.reveal()), "replication": "database"}
    return connect(Secret(conninfo.make_conninfo("", **parameters)))


def session_sql(settings: Mapping[str, str] = SESSION) -> str:
    """The statement that sets a session's settings, in one round trip. The server must know all of them."""
    return "SELECT " + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())


def supported_session_sql(settings: Mapping[str, str]) -> str:
    """The same, without the settings that an older server does not know."""
    values = ", ".join(f"('{name}', '{value}')" for name, value in settings.items())
    return (
        "SELECT set_config(name, wanted.value, false) "  # noqa: S608 - constants
        f"FROM pg_settings JOIN (VALUES {values}) AS wanted (name, value) USING (name)"
    )


Operation = Literal["query", "command", "copy", "read slot", "create slot", "move slot", "read timelines"]

COPY_AGAIN = (
    "copy the tables again, which also removes rows that were deleted meanwhile: headwater rewind NAME --to snapshot"
)
_RETRY_HINT = "the next cycle reads the window again; check the server if this repeats"
_ADDRESS_HINT = "check that the server runs, and its address, user and password"
_ANY = "*"
_NO_STATE = ""  # the connection failed: no server sent one
# Connection, operator's intervention, idle in transaction, resources, a standby's conflict.
_TRANSIENT = ("08", "57", "25P03", "53", "40")


class Remedy(NamedTuple):
    """The error to raise. `message` follows the subject; `{reason}` is the server's own message."""

    error: type[HeadwaterError]
    hint: str
    message: str = "{reason}"


_UNKNOWN_NAME = Remedy(UnknownName, "correct the name in table, tables, query, cursor, columns or where")
_UNREACHABLE = Remedy(SourceUnreachable, _ADDRESS_HINT)
# By SQLSTATE, or by its class (the first two letters). What an operation does not list is looked up in `query`.
_REMEDIES: Mapping[Operation, Mapping[str, Remedy]] = {
    "query": {
        "42P01": _UNKNOWN_NAME,
        "42703": _UNKNOWN_NAME,
        "3F000": _UNKNOWN_NAME,
        "42501": Remedy(SourceUnreachable, "allow the role to read it: GRANT SELECT ON … TO …"),
        "42": Remedy(InputError, "correct where or query", "the database refused the SQL: {reason}"),
        "22": Remedy(RunError, "a value made the SQL fail; correct where or query"),
        _ANY: _UNREACHABLE,
    },
    "command": {
        "42501": Remedy(
            SourceUnreachable, "connect as a role with this privilege, for example the owner of the tables"
        ),
        **dict.fromkeys((_NO_STATE, "08", "28", "40", "53", "54", "55", "57", "58"), _UNREACHABLE),
        _ANY: Remedy(InputError, "", "the server refused: {reason}"),
    },
    "copy": {
        "42501": Remedy(
            SourceUnreachable,
            "allow the role to read the whole table and each of its partitions: GRANT SELECT ON … TO …; "
            "ALTER ROLE … BYPASSRLS",
        ),
        _ANY: Remedy(SourceUnreachable, _RETRY_HINT),
    },
    "read slot": {
        "55000": Remedy(
            SourceChanged, f"if the slot is lost (wal_status in pg_replication_slots), its WAL is gone; {COPY_AGAIN}"
        ),
        "42704": Remedy(SourceChanged, f"a dropped slot takes its WAL with it; {COPY_AGAIN}"),
        "55006": Remedy(SourceUnreachable, "another process reads this slot; each pipeline needs a slot of its own"),
        "42501": Remedy(
            SourceUnreachable, "the role needs REPLICATION; headwater postgres check shows how to grant it"
        ),
        **dict.fromkeys(
            ("22", "54", "XX"), Remedy(RunError, "the server could not decode its WAL; see the server's own log")
        ),
        _ANY: Remedy(SourceUnreachable, _RETRY_HINT),
    },
    "create slot": {
        "42710": Remedy(InputError, "write another name in slot:", "slot {slot} already exists"),
        "53400": Remedy(
            SourceUnreachable,
            "drop an unused slot (SELECT slot_name, active FROM pg_replication_slots), or raise max_replication_slots",
            "all replication slots are in use: {reason}",
        ),
        "55000": Remedy(
            InputError,
            "set wal_level = logical and restart the server (of a standby: the primary); see headwater postgres check",
            "cannot create slot {slot}: {reason}",
        ),
        "42501": Remedy(
            InputError, "let the role replicate: ALTER ROLE … REPLICATION", "the role may not create a slot: {reason}"
        ),
        "57014": Remedy(
            SourceUnreachable,
            "end the oldest transaction (SELECT pid, xact_start FROM pg_stat_activity "
            "WHERE backend_xid IS NOT NULL ORDER BY 2); on a standby: SELECT pg_log_standby_snapshot() on its primary",
            "slot {slot} was not ready after {seconds:g} s: open transactions did not end, or the primary of this "
            "standby wrote nothing",
        ),
    },
    "move slot": {
        "42704": Remedy(SourceChanged, COPY_AGAIN, "slot {slot} is gone"),
        "55000": Remedy(SourceChanged, COPY_AGAIN, "cannot move slot {slot} to {lsn}: {reason}"),
        "55006": Remedy(SourceUnreachable, "one slot serves one pipeline", "another session is reading slot {slot}"),
    },
    "read timelines": {
        _ANY: Remedy(
            SourceUnreachable,
            "allow the role to open replication connections: ALTER ROLE … REPLICATION, and a line in pg_hba.conf",
            "cannot read the history of timeline {timeline}: {reason}",
        ),
    },
}


@contextmanager
def translated(subject: str, operation: Operation = "query", **values: object) -> Iterator[None]:
    """Translate psycopg's errors at the border. `subject` begins the message; `values` fill it."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, subject, operation, **values) from None


def translate(error: Exception, subject: str, operation: Operation = "query", **values: object) -> HeadwaterError:
    state = getattr(error, "sqlstate", None) or _NO_STATE
    remedies = (_REMEDIES[operation], _REMEDIES["query"])
    remedy = next(table[key] for table in remedies for key in (state, state[:2], _ANY) if key in table)
    message = remedy.message.format(reason=server_message(error), **values)
    return remedy.error(f"{subject}: {message}", hint=remedy.hint)


def server_message(error: Exception) -> str:
    """The server's own message on one line, without secrets (G11)."""
    return masked(" ".join(str(error).split()))


def is_transient(error: Exception) -> bool:
    """True if the connection failed and not the statement, so that another try may succeed."""
    state = getattr(error, "sqlstate", None)
    if state:
        return str(state).startswith(_TRANSIENT)
    return not isinstance(error, psycopg.Error) or isinstance(error, psycopg.OperationalError)


_SNAPSHOT_NAME = re.compile(r"[0-9A-Fa-f-]+")


class PostgresSession:
    """Connects when first needed and again after a failure. Between `begin_view` and `end_view` all reads agree."""

    def __init__(self, url: Secret) -> None:
        self._url = url
        self.address = masked(url.reveal())
        self._connection: Connection | None = None
        self._snapshot = ""
        self.connections = 0  # counts them: what was read on an older one may no longer hold

    def ping(self) -> None:
        """Check the connection; replace it if a restart of the server cut it."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.Error:
                self.close()
        self._open()

    def fetch(self, sql: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        with translated(self.address):
            try:
                return self.connection.execute(sql, values).fetchall()
            except psycopg.OperationalError:
                self.close()
                raise

    def run(self, sql: str) -> None:
        """Run a statement that returns no rows."""
        with translated(self.address):
            try:
                self.connection.execute(sql)
            except psycopg.OperationalError:
                self.close()
                raise

    def describe(self, sql: str) -> list[tuple[str, int, int]]:
        """Name, type number and type modifier of each column of a result."""
        with translated(self.address):
            result = self.connection.execute(sql).pgresult
            if result is None:
                raise RunError(f"{self.address}: no description of {sql}")
            columns = []
            for number in range(result.nfields):
                name = result.fname(number) or b""
                columns.append((name.decode(), result.ftype(number), result.fmod(number)))
            return columns

    @property
    def connection(self) -> Connection:
        """The connection, opened if needed. The caller translates the errors of what it runs on it."""
        return self._open()

    @property
    def server_version(self) -> int:
        """As PostgreSQL counts: 180001 is 18.1."""
        return self.connection.info.server_version

    def begin_view(self) -> None:
        """One snapshot for everything up to `end_view`."""
        self.end_view()
        with translated(self.address):
            # The settings again: a pooler may run this transaction in another server session.
            self.connection.execute(f"{BEGIN}; {session_sql()}")

    def export(self) -> str:
        """The name under which executors can read in the same snapshot, as long as the view lasts."""
        if not self._snapshot:
            ((name,),) = self.fetch("SELECT pg_export_snapshot()")
            if not _SNAPSHOT_NAME.fullmatch(name):
                raise RunError(f"{self.address}: unexpected snapshot name {name!r}")
            self._snapshot = name
        return self._snapshot

    def end_view(self) -> None:
        self._snapshot = ""
        connection = self._connection
        if connection is None:
            return
        if connection.broken or connection.closed:
            self.close()
        elif connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            try:
                connection.execute("ROLLBACK")
            except psycopg.Error:
                self.close()  # the next use connects anew

    def close(self) -> None:
        self._snapshot = ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            with translated(self.address):
                connection = connect(self._url)
                connection.execute(session_sql())
                self._connection = connection
                self.connections += 1
        return self._connection
