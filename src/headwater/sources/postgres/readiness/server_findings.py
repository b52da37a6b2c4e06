"""What the server itself must be set to: wal_level, room for slots and senders, a budget for the log."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.sources.postgres.readiness.facts import NO_LIMIT, Facts, Server, Service
from headwater.sources.postgres.readiness.findings import Finding, Wanted, missing, note, ok

_STANDBYS_DECODE = 160_000
_ENOUGH = 10

_NAMES: dict[Service, str] = {
    "rds": "Amazon RDS or Aurora",
    "cloud sql": "Google Cloud SQL",
    "azure": "Azure Database for PostgreSQL",
}
_HOW_TO_SET: dict[Service, str] = {
    "rds": "set rds.logical_replication = 1 in the instance's parameter group (Aurora: the cluster's) and reboot it",
    "cloud sql": "set the flag cloudsql.logical_decoding = on; the instance restarts",
    "azure": "set wal_level = LOGICAL in the server parameters and restart the server",
}
_NOTES: dict[Service, str] = {
    "rds": "there is no superuser: the right to replicate comes from the role rds_replication, and settings from the "
    "parameter group",
    "cloud sql": "settings are flags of the instance; a member of cloudsqlsuperuser can give a role REPLICATION",
    "azure": "settings are server parameters; a member of azure_pg_admin can give a role REPLICATION",
}


def about_server(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    server = facts.server
    yield ok("server", f"PostgreSQL {server.version_text}, database {server.database}")
    if server.service != "own":
        yield note("service", f"{_NAMES[server.service]}: {_NOTES[server.service]}")
    if server.standby:
        yield _standby(server)
    yield _wal_level(server)
    needs_slot = wanted.slot is None or wanted.slot not in facts.slots
    yield _room(server, "max_replication_slots", server.slots_most, server.slots_used, needed=needs_slot)
    has_sender = wanted.slot is not None and wanted.slot in facts.slots and facts.slots[wanted.slot].active
    yield _room(server, "max_wal_senders", server.senders_most, server.senders_used, needed=not has_sender)
    yield from _budget(server)


def _standby(server: Server) -> Finding:
    if server.version < _STANDBYS_DECODE:
        remedy = "connect to the primary, or upgrade to PostgreSQL 16"
        return missing("standby", "this server is a standby, and decodes no log before PostgreSQL 16", remedy)
    return note("standby", "this server is a standby: publications, roles and tables are changed on its primary")


def _wal_level(server: Server) -> Finding:
    if server.wal_level == "logical":
        return ok("wal_level", "logical")
    if server.service != "own":
        return missing("wal_level", server.wal_level, _HOW_TO_SET[server.service])
    remedy = "set it, then restart the server: a reload is not enough"
    return missing("wal_level", server.wal_level, remedy, "ALTER SYSTEM SET wal_level = 'logical'")


def _room(server: Server, setting: str, most: int, used: int, *, needed: bool) -> Finding:
    left = max(0, most - used)
    found = f"{left} of {most} left"
    if left or not needed:
        return ok(setting, found)
    if server.service != "own":
        return missing(setting, found, f"raise {setting} where the service keeps its settings, and restart")
    remedy = "raise it and restart the server, or drop slots that nobody reads"
    return missing(setting, found, remedy, f"ALTER SYSTEM SET {setting} = {max(_ENOUGH, 2 * most)}")


def _budget(server: Server) -> Iterator[Finding]:
    if server.slot_keep_megabytes == NO_LIMIT:
        found = "no limit: a slot that nobody reads keeps the log until the disk is full"
        remedy = (
            "set a budget that the longest outage fits into; a slot beyond it is lost, and its tables are read anew"
        )
        yield note("max_slot_wal_keep_size", found, remedy)
    else:
        yield ok("max_slot_wal_keep_size", f"{server.slot_keep_megabytes:,} MB")
    if server.idle_slot_seconds:
        found = f"a slot that is not read for {server.idle_slot_seconds:,} s is invalidated"
        yield note("idle_replication_slot_timeout", found, "keep it above the longest pause of whoever reads the slot")
