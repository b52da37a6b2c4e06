"""All findings about a server, its role, its tables and its slots, in the order in which to mend them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.sources.postgres.readiness.facts import Facts
from headwater.sources.postgres.readiness.findings import Finding, Wanted
from headwater.sources.postgres.readiness.role_findings import about_role
from headwater.sources.postgres.readiness.server_findings import about_server
from headwater.sources.postgres.readiness.slot_findings import about_slots
from headwater.sources.postgres.readiness.table_findings import about_publication, about_table


def examine(facts: Facts, wanted: Wanted) -> Sequence[Finding]:
    found = [*about_server(facts, wanted), *about_role(facts)]
    # Tables before the publication: between the two, an UPDATE of one without an identity would fail.
    for table in facts.tables:
        found.extend(about_table(table, facts, wanted))
    return [*found, *about_publication(facts, wanted), *about_slots(facts, wanted)]
