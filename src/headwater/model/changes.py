"""The shape of change rows: a table's columns, and beside them what happened to the row, and when in the source's log.

Every transport (Debezium's events in Kafka or in objects, a replication slot) delivers this shape; sinks know no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headwater.model.rows import Rows

if TYPE_CHECKING:
    import pyarrow as pa

OP = "_op"
"""c inserted, u updated, d deleted, r read by a snapshot, t truncated: the whole table, the row has no key."""
POSITION = "_position"
"""Where the change stands in the source's log (see `position`). Of two changes of one key the greater wins (G7)."""
SOURCE_TIME = "_source_time"
"""When it happened, by the source's clock: for people; nothing is ordered by it."""
TRANSACTION = "_transaction"
"""The source's transaction, as text, where it says one."""
MISSING = "_missing"
"""Columns whose values the event leaves out because they did not change (TOAST); NULL: none."""
OLD_KEY = "_old_key"
"""Of an insert that is a change of key: the row's former key, a JSON array of its values in the key's order."""

CHANGE_COLUMNS = (OP, POSITION, SOURCE_TIME, TRANSACTION, MISSING, OLD_KEY)

UPSERTS = ("c", "u", "r")
_MINOR = 10**19  # above every 63-bit number, so that two of them fit into 38 digits


def position(major: int, minor: int) -> int:
    """Two numbers of a log as one that orders like the pair; kept in decimal(38, 0).

    | source | major | minor |
    | --- | --- | --- |
    | PostgreSQL by Debezium | commit before (`sequence[0]`; without it the LSN) | 2 × LSN (none: 0) + 1 unless a snapshot's read |
    | PostgreSQL by a slot | commit's LSN; of a copy's rows the snapshot's | 4 × number in the transaction, from 1, + 3; a copy's rows 2, the truncate before them 1 |
    | MySQL by Debezium | number of the log file × 2⁴⁰ + place in it | 2 × number in the transaction (not told: of the row at that place) + 1 unless a snapshot's read |

    A snapshot's read comes before a change at the same place, since it saw the table as it was before that.
    """
    return major * _MINOR + minor


def change_fields() -> list[pa.Field]:
    """The columns beside a table's own, in their order."""
    import pyarrow as pa  # noqa: PLC0415 - an idle poll needs no Arrow

    return [
        pa.field(OP, pa.string(), nullable=False),
        pa.field(POSITION, pa.decimal128(38, 0), nullable=False),
        pa.field(SOURCE_TIME, pa.timestamp("us", "UTC")),
        pa.field(TRANSACTION, pa.string()),
        pa.field(MISSING, pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field(OLD_KEY, pa.string()),
    ]


@runtime_checkable
class ChangeRows(Rows, Protocol):
    """Rows that are changes. Their schema: the table's columns, CHANGE_COLUMNS, then what the transport knows.

    Of a delete only the key's columns can be trusted, and only they are filled. Columns outside of the key are nullable.
    """

    @property
    def table_columns(self) -> tuple[str, ...]:
        """The names of the columns that are the source's table's own; the key's are among them."""


@runtime_checkable
class CopiedRows(ChangeRows, Protocol):
    """Changes that may be a copy of a table: reads of one snapshot, no two of one key, behind a truncate."""

    @property
    def is_copy(self) -> bool:
        """Whether they are. Of a copy in several windows only the first brings the truncate."""


@runtime_checkable
class EventRows(ChangeRows, Protocol):
    """Changes whose events can be told apart, so that a log of them keeps each once."""

    @property
    def event_key(self) -> tuple[str, ...]:
        """Columns that name an event in what brought it: a topic's partition and the offset. Empty: nothing does."""

    @property
    def arrival(self) -> str:
        """The column that says when it came there; empty: none."""
