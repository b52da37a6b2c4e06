"""Which transaction a new slot waits for."""

from __future__ import annotations

from headwater.sources.sql.postgres_session import PostgresSession

_WAITED_FOR = """
SELECT w.transactionid::text, p.gid, h.pid, a.usename::text, a.application_name, a.state,
    extract(epoch FROM clock_timestamp() - coalesce(p.prepared, a.xact_start))::bigint
FROM pg_locks w
LEFT JOIN pg_locks h ON h.locktype = 'transactionid' AND h.transactionid = w.transactionid AND h.granted
LEFT JOIN pg_stat_activity a ON a.pid = h.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = w.transactionid
WHERE w.pid = %s AND w.locktype = 'transactionid' AND NOT w.granted"""


def waited_for(session: PostgresSession, pid: int) -> str:
    """In words, for people; the transaction's statement is not among them, since it may hold values."""
    found = session.fetch(_WAITED_FOR, [pid])
    if not found:
        return "the server waits for transactions that were open to end (on a standby: for pg_log_standby_snapshot() on its primary)"
    number, prepared, holder, role, application, state, seconds = found[0]
    since = f", open for {seconds:,} s," if seconds is not None else ""
    if prepared is not None:
        return f"it waits for prepared transaction {prepared!r}{since} to be committed or rolled back"
    who = ", ".join(word for word in (f"role {role}" if role else "", application, state) if word)
    return f"it waits for transaction {number} of session {holder} ({who}){since} to end"
