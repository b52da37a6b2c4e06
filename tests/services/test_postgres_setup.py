"""Readiness as a pure function of facts: what no test server can be made to say as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.model.errors import InputError
from headwater.pg import sql_text
from headwater.pg.catalog import Facts, Publication, PublicationEntry, Role, Server, Slot, Table
from headwater.pg.names import ListedRelation, choose_tables, split_setting
from headwater.services.postgres_setup.preparation import Request, prepare
from headwater.services.postgres_setup.rules import CaptureNames, Finding, examine, is_ready

SERVER = Server(
    version=180001,
    database="shop",
    service="own",
    standby=False,
    wal_level="logical",
    slots_most=10,
    slots_used=1,
    senders_most=10,
    senders_used=1,
    slot_keep_megabytes=4096,
    idle_slot_seconds=0,
)
ORDERS = Table(1, "sales", "orders", "table", key=("id",))
SHOP = Publication("shop", entries={1: PublicationEntry("1")}, tables=frozenset({1}))
FACTS = Facts(SERVER, Role("capture", replication=True), (ORDERS,), {"shop": SHOP}, {})
SLOT = Slot(
    "s", "pgoutput", "shop", active=False, wal_status="reserved", safe_bytes=None, kept_bytes=2**20, invalidated=""
)


def server(**changes: object) -> Facts:
    return replace(FACTS, server=replace(SERVER, **changes))


def table(**changes: object) -> Facts:
    return replace(FACTS, tables=(replace(ORDERS, **changes),))


def about(facts: Facts, subject: str, wanted: CaptureNames = CaptureNames()) -> list[Finding]:  # noqa: B008 - frozen
    return [finding for finding in examine(facts, wanted) if finding.subject == subject]


def only(facts: Facts, subject: str, wanted: CaptureNames = CaptureNames()) -> Finding:  # noqa: B008
    (finding,) = about(facts, subject, wanted)
    return finding


def test_a_server_with_everything_is_ready():
    findings = examine(FACTS, CaptureNames("shop"))
    assert is_ready(findings)
    assert {finding.state for finding in findings} == {"ok"}


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("rds", "rds.logical_replication = 1"),
        ("cloud sql", "cloudsql.logical_decoding"),
        ("azure", "server parameters"),
    ],
)
def test_managed_services_are_told_where_their_settings_are_and_get_no_sql_that_they_refuse(service, words):
    facts = server(service=service, wal_level="replica", slots_used=10)
    finding = only(facts, "wal_level")
    assert words in finding.remedy
    assert finding.sql == ()
    assert only(facts, "max_replication_slots").sql == ()
    assert only(facts, "service").state == "note"


def test_on_rds_the_right_to_replicate_is_a_role():
    facts = replace(server(service="rds"), role=Role("capture"))
    assert only(facts, "role capture").sql == ('GRANT rds_replication TO "capture"',)
    granted = only(replace(facts, role=Role("capture", rds_replication=True)), "role capture")
    assert (granted.state, granted.found) == ("ok", "may replicate (by rds_replication); no superuser")
    preparation = prepare(replace(facts, role=Role("capture", exists=False)), Request("shop", role="capture"))
    assert [one.text for one in preparation.statements[:2]] == [
        'CREATE ROLE "capture" LOGIN',
        'GRANT rds_replication TO "capture"',
    ]


def test_on_our_own_server_wal_level_is_set_by_sql_and_a_restart():
    finding = only(server(wal_level="replica"), "wal_level")
    assert (finding.state, finding.sql) == ("missing", ("ALTER SYSTEM SET wal_level = 'logical'",))
    assert "restart" in finding.remedy


def test_no_slots_left_is_missing_unless_the_slot_is_there_already():
    facts = replace(server(slots_used=10, senders_used=10), slots={"s": replace(SLOT, active=True)})
    assert only(facts, "max_replication_slots").state == "missing"
    assert only(facts, "max_wal_senders").state == "missing"
    assert only(facts, "max_replication_slots", CaptureNames(slot="s")).state == "ok"
    assert only(facts, "max_wal_senders", CaptureNames(slot="s")).state == "ok"
    assert "0 of 10 left" in only(facts, "max_wal_senders").found


def test_standbys_decode_since_16():
    assert only(server(standby=True), "standby").state == "note"
    assert only(server(standby=True, version=150004), "standby").state == "missing"


def test_a_log_without_a_budget_and_a_timeout_for_idle_slots_are_noted():
    assert only(server(slot_keep_megabytes=-1), "max_slot_wal_keep_size").state == "note"
    assert only(server(idle_slot_seconds=3600), "idle_replication_slot_timeout").state == "note"
    assert about(server(idle_slot_seconds=None), "idle_replication_slot_timeout") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": ()}, "it has no primary key"),
        ({"identity": "nothing"}, "NOTHING"),
        ({"identity": "index", "identity_index": None}, "is gone"),
        ({"key_deferrable": True}, "deferrable"),
    ],
)
def test_tables_whose_updates_would_fail_are_not_ready_and_are_not_published(changes, words):
    facts = table(**changes)
    finding = only(facts, "table sales.orders")
    assert finding.state == "missing"
    assert words in finding.found
    assert "since shop publishes it, UPDATE and DELETE fail in your application" in finding.found
    later = only(replace(facts, publications={}), "table sales.orders")
    assert "once published, UPDATE and DELETE fail" in later.found
    with pytest.raises(InputError, match=words):
        prepare(facts, Request("new"))


def test_a_partition_without_identity_is_told_by_its_own_name():
    leaf = Table(3, "sales", "orders_2026", "table", is_partition=True)
    root = replace(ORDERS, kind="partitioned table", partitions=(leaf,))
    facts = replace(FACTS, tables=(root,), publications={"shop": replace(SHOP, via_root=True)})
    assert "partition sales.orders_2026: it has no primary key" in only(facts, "table sales.orders").found
    with pytest.raises(InputError, match=r"sales\.orders_2026: it has no primary key"):
        prepare(facts, Request("new"))
    preparation = prepare(facts, Request("new", default_identity="full"))
    assert [one.text for one in preparation.statements] == [
        'ALTER TABLE "sales"."orders_2026" REPLICA IDENTITY FULL',
        'CREATE PUBLICATION "new" FOR TABLE "sales"."orders" WITH (publish_via_partition_root = true)',
    ]


def test_a_partitioned_table_that_is_published_under_its_partitions_names_is_not_ready():
    leaf = Table(3, "sales", "orders_2026", "table", is_partition=True, key=("id",))
    root = replace(ORDERS, kind="partitioned table", partitions=(leaf,))
    by_leaf = Publication("shop", entries={1: PublicationEntry("1")}, tables=frozenset({3}))
    facts = replace(FACTS, tables=(root,), publications={"shop": by_leaf})
    finding = about(facts, "publication shop")[-1]
    assert finding.sql == ('ALTER PUBLICATION "shop" SET (publish_via_partition_root = true)',)
    assert not is_ready(examine(facts, CaptureNames("shop")))
    assert [one.text for one in prepare(facts, Request("shop")).statements] == list(finding.sql)
    assert prepare(facts, Request("shop", via_root=False)).statements == ()


def test_a_lost_slot_is_not_ready_when_it_is_the_one_to_use():
    facts = replace(FACTS, slots={"s": replace(SLOT, wal_status="lost", invalidated="wal_removed")})
    wanted = only(facts, "slot s", CaptureNames(slot="s"))
    assert (wanted.state, wanted.sql) == ("missing", ("SELECT pg_drop_replication_slot('s')",))
    assert "wal_removed" in wanted.found
    assert only(facts, "slot s").state == "note"
    with pytest.raises(InputError, match="slot s is lost"):
        prepare(facts, Request("shop", slot="s"))


@pytest.mark.parametrize("changes", [{"plugin": "wal2json"}, {"database": "other"}])
def test_a_slot_of_another_database_or_plugin_cannot_be_used(changes):
    facts = replace(FACTS, slots={"s": replace(SLOT, **changes)})
    assert only(facts, "slot s", CaptureNames(slot="s")).state == "missing"
    with pytest.raises(InputError, match="slot s exists"):
        prepare(facts, Request("shop", slot="s"))


def test_slots_that_nobody_reads_are_noted_with_the_log_they_keep():
    idle = replace(SLOT, kept_bytes=5 * 2**20, safe_bytes=2**20)
    assert "retains 5.0 MB of WAL, lost after 1.0 MB more" in only(replace(FACTS, slots={"s": idle}), "slot s").found
    soon = replace(idle, wal_status="unreserved", active=True)
    assert "about to be lost" in only(replace(FACTS, slots={"s": soon}), "slot s").found
    assert about(replace(FACTS, slots={"s": replace(idle, active=True)}), "slot s") == []


def test_a_publication_that_leaves_out_deletes_is_not_ready():
    facts = replace(FACTS, publications={"shop": replace(SHOP, operations=frozenset({"insert", "update"}))})
    finding = only(facts, "publication shop")
    assert (finding.state, finding.found) == ("missing", "leaves out delete")
    assert [one.text for one in prepare(facts, Request("shop")).statements] == list(finding.sql)


def test_identities_are_mended_before_the_table_is_published():
    findings = examine(replace(table(key=()), publications={}), CaptureNames("shop"))
    assert [finding.sql[0].split()[0] for finding in findings if finding.state == "missing"] == ["ALTER", "CREATE"]


def test_a_second_preparation_has_nothing_to_do():
    assert prepare(FACTS, Request("shop", role="capture")).statements == ()


def test_a_wrong_index_for_an_identity_names_those_that_fit():
    facts = table(key=(), unique_indexes=("orders_code_key",))
    with pytest.raises(InputError, match="index nosuch cannot be a replica identity") as raised:
        prepare(facts, Request("shop", identities={1: "nosuch"}))
    assert "orders_code_key" in raised.value.hint
    preparation = prepare(facts, Request("shop", identities={1: "orders_code_key"}))
    assert [one.text for one in preparation.statements] == [
        'ALTER TABLE "sales"."orders" REPLICA IDENTITY USING INDEX "orders_code_key"'
    ]


def test_names_are_quoted_and_move_no_cursor():
    assert sql_text.name('a"b; DROP TABLE x') == '"a""b; DROP TABLE x"'
    assert sql_text.name('a\n\x1b[2J\\"') == 'U&"a\\+00000A\\+00001B[2J\\\\"""'
    assert sql_text.literal("it's") == "'it''s'"


LISTED = [
    ListedRelation(1, "public", "orders", visible=True),
    ListedRelation(2, "sales", "orders"),
    ListedRelation(3, "sales", "orders_2026", is_partition=True),
    ListedRelation(4, "sales", "a*b"),
]


def test_names_and_patterns_choose_tables():
    assert choose_tables(LISTED, ["orders"], []) == [1]
    assert choose_tables(LISTED, ["sales.*", "sales.orders"], []) == [2, 4]
    assert choose_tables(LISTED, ["sales.*"], ["sales.orders"]) == [4]
    assert choose_tables(LISTED, ["*.orders"], []) == [1, 2]
    assert choose_tables(LISTED, ['sales."a*b"'], []) == [4]
    assert choose_tables(LISTED, ["sales.orders_2026"], []) == [3]
    with pytest.raises(InputError, match=r"table sales\.ordres does not exist") as raised:
        choose_tables(LISTED, ["sales.ordres"], [])
    assert "sales.orders" in raised.value.hint
    with pytest.raises(InputError, match="no table matches"):
        choose_tables(LISTED, ["hr.*"], [])


def test_settings_of_tables_are_split_at_the_first_sign_outside_of_quotes():
    assert split_setting("sales.orders=a = 'b'") == ("sales.orders", "a = 'b'")
    assert split_setting('"a=b".t=full') == ('"a=b".t', "full")
    assert split_setting("full") == (None, "full")
