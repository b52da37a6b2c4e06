"""What became of the slots that are there: lost ones, and those that hold the log back."""

from __future__ import annotations

from collections.abc import Iterator

from headwater.sources.postgres.readiness.facts import Facts, Slot
from headwater.sources.postgres.readiness.findings import Finding, Wanted, missing, note, ok
from headwater.sources.postgres.readiness.sql_text import literal

_MEGABYTE = 1024 * 1024


def about_slots(facts: Facts, wanted: Wanted) -> Iterator[Finding]:
    for slot in facts.slots.values():
        if slot.name == wanted.slot:
            yield from _wanted(slot, facts.server.database)
        elif slot.database == facts.server.database:
            yield from _other(slot)
    if wanted.slot is not None and wanted.slot not in facts.slots:
        yield note(f"slot {wanted.slot}", "is not there yet: whoever captures first makes it")


def is_lost(slot: Slot) -> bool:
    return slot.wal_status == "lost" or bool(slot.invalidated)


def _wanted(slot: Slot, database: str) -> Iterator[Finding]:
    subject = f"slot {slot.name}"
    if slot.database != database:
        yield missing(subject, f"belongs to database {slot.database}", "use another name")
    elif slot.plugin != "pgoutput":
        yield missing(subject, f"decodes with {slot.plugin}, not with pgoutput", "use another name")
    elif is_lost(slot):
        yield missing(subject, _why_lost(slot), "drop it; the tables are then read anew", _dropped(slot))
    else:
        yield ok(subject, _standing(slot))


def _other(slot: Slot) -> Iterator[Finding]:
    subject = f"slot {slot.name}"
    if is_lost(slot):
        yield note(subject, _why_lost(slot), "its reader must start anew; drop it", _dropped(slot))
    elif slot.wal_status == "unreserved":
        yield note(subject, f"is about to be lost: {_standing(slot)}", "start its reader now")
    elif not slot.active:
        yield note(subject, _standing(slot), "if nobody will read it again, drop it", _dropped(slot))


def _why_lost(slot: Slot) -> str:
    why = f" ({slot.invalidated})" if slot.invalidated else ""
    return f"is lost{why}: the server no longer has the log that comes next"


def _standing(slot: Slot) -> str:
    kept = f"keeps {(slot.kept_bytes or 0) / _MEGABYTE:,.1f} MB of the log"
    safe = "" if slot.safe_bytes is None else f", lost after {slot.safe_bytes / _MEGABYTE:,.1f} MB more"
    return f"{'is read now' if slot.active else 'is not read now'}, {kept}{safe}"


def _dropped(slot: Slot) -> str:
    return f"SELECT pg_drop_replication_slot({literal(slot.name)})"
