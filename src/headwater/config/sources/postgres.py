"""Settings of the `postgres` source."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from headwater.config.settings import Bytes, Duration, SecretText, Settings

_SLOT = re.compile(r"[a-z0-9_]{1,63}")


class SlotGuardSettings(Settings):
    """The WAL that the slot may retain on the server, and the reaction to more."""

    budget: Bytes = Field(default=10_000_000_000, gt=0, examples=["10GB"])
    """An unread slot retains WAL until the disk is full. Warnings start at half of this size."""
    at_budget: Literal["stop", "drop_slot"] = "stop"
    """stop: the pipeline stops with an error, and the WAL stays. drop_slot: the slot is dropped to save the database; all tables are copied again when the pipeline is rewound (`--to snapshot`)."""
    heartbeat: Duration | None = Field(default="1m", validate_default=True, examples=["1m"])
    """How often to write a WAL message when other databases or tables write and this pipeline's do not, so that the slot can advance. null: never."""
    oldest_transaction: Duration = Field(default="1h", validate_default=True, examples=["1h"])
    """Warn of a transaction that is open for longer: every cycle decodes all WAL since its begin again."""


class PostgresSourceSettings(Settings):
    """Capture changes from PostgreSQL's WAL through a replication slot: no Kafka, no Debezium."""

    url: SecretText = Field(examples=["${PG_URL}"])
    """`postgresql://…`, of a role that may replicate and read the tables."""
    tables: list[str] = Field(min_length=1, examples=["[public.orders, 'sales.*']"])
    """Each table is one stream; `sales.*` matches by name, and new tables that match are copied and captured."""
    exclude: list[str] = []
    """Tables that the patterns in `tables` shall not match; patterns themselves."""
    slot: str = Field(examples=["headwater_shop"])
    """The replication slot: one per pipeline. It is created by the first run."""
    publication: str | None = Field(default=None, min_length=1, max_length=63)
    """The publication; by default it has the slot's name. The pipeline creates it and keeps it equal to `tables`."""
    columns: dict[str, list[str]] = {}
    """Only these columns of a table: `{public.orders: [id, state]}`. The key must be among them."""
    where: dict[str, str] = {}
    """Only these rows of a table, by a condition in SQL: `{public.orders: "state <> 'draft'"}` (PostgreSQL 15 or newer)."""
    as_text: dict[str, list[str]] = {}
    """Columns to read as text, for values that their type cannot keep (infinity, NaN, BC dates)."""
    window: Bytes = Field(default=512_000_000, gt=0, examples=["512MB"])
    """About how much WAL one cycle reads at most; transactions are never split."""
    copy_bytes: Bytes = Field(default=8_000_000_000, gt=0, examples=["8GB"])
    """About how much of an initial copy one cycle reads; changes stream between the cycles."""
    splits: int | None = Field(default=None, gt=0)
    """Parallel reads of a table that is copied; by default from its size and the cores."""
    type_changes: Literal["copy", "refuse"] = "copy"
    """A column that gets another type, not only a wider one. copy: later values land in a column `name__type`, and the table is copied again. refuse: the pipeline stops."""
    failover: bool = False
    """Create the slot so that it is synchronised to standbys (PostgreSQL 17 or newer)."""
    guard: SlotGuardSettings = SlotGuardSettings()
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
