"""Settings of the `postgres` source."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from headwater.config.bytes import Bytes
from headwater.config.frozen import Duration, SecretText, Settings

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class SlotGuard(Settings):
    """How much of the log the slot may make the server keep, and what happens then."""

    budget: Bytes = Field(default=10_000_000_000, gt=0, examples=["10GB"])
    """A slot that is not read makes the server keep its log, until the disk is full. From half of this on there are warnings."""
    at_budget: Literal["stop", "drop_slot"] = "stop"
    """stop: the pipeline stops with an error, and the log is kept. drop_slot: the slot is given up to save the database; all tables are copied again when the pipeline is rewound (`--to snapshot`)."""
    heartbeat: Duration | None = Field(default="1m", validate_default=True, examples=["1m"])
    """Where the log grows and none of it is for this pipeline: write a message into it that often, so that the slot can move on. null: never."""
    oldest_transaction: Duration = Field(default="1h", validate_default=True, examples=["1h"])
    """Warn of a transaction that has been open for so long: what is written after its begin has to be read again and again."""


class PostgresSource(Settings):
    """Capture changes straight from PostgreSQL's log, through a replication slot: no Kafka, no Debezium."""

    url: SecretText = Field(examples=["${PG_URL}"])
    """`postgresql://…`, of a role that may replicate and read the tables."""
    tables: list[str] = Field(min_length=1, examples=["[public.orders, 'sales.*']"])
    """Each is a stream of its own; `sales.*` matches by name, and new tables that match are copied and taken up."""
    exclude: list[str] = []
    """Tables that the patterns in `tables` shall not match; patterns themselves."""
    slot: str = Field(examples=["headwater_shop"])
    """The replication slot: one per pipeline. It is created by the first run."""
    publication: str | None = Field(default=None, min_length=1, max_length=63)
    """The publication; by default it is called as the slot. It is created, and kept as `tables` says."""
    columns: dict[str, list[str]] = {}
    """Only these columns of a table: `{public.orders: [id, state]}`. The key must be among them."""
    where: dict[str, str] = {}
    """Only these rows of a table, by a condition in SQL: `{public.orders: "state <> 'draft'"}` (PostgreSQL 15 or newer)."""
    as_text: dict[str, list[str]] = {}
    """Columns to read as text, for values that their type cannot keep (infinity, NaN, BC dates)."""
    window: Bytes = Field(default=512_000_000, gt=0, examples=["512MB"])
    """At most about so much log in one cycle; transactions stay whole."""
    copy_bytes: Bytes = Field(default=8_000_000_000, gt=0, examples=["8GB"])
    """At most about so much of tables that are being copied in one cycle; between them the stream goes on."""
    splits: int | None = Field(default=None, gt=0)
    """Parallel reads of a table that is copied; by default from its size and the cores."""
    type_changes: Literal["copy", "refuse"] = "copy"
    """A column that gets another type, not only a wider one. copy: its values go on in a column `name__type`, and the table is copied again. refuse: the pipeline stops."""
    failover: bool = False
    """Create the slot so that it is synchronised to standbys (PostgreSQL 17 or newer)."""
    guard: SlotGuard = SlotGuard()
    """Protects the database from a slot that is not read."""

    @field_validator("slot")
    @classmethod
    def _names_a_slot(cls, slot: str) -> str:
        if not _SLOT.fullmatch(slot):
            raise ValueError("a slot's name has lower case letters, digits and _, at most 63 of them")
        return slot

    @property
    def publication_name(self) -> str:
        return self.publication or self.slot
