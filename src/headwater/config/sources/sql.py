"""Settings of the `sql` source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from headwater.config.settings import Duration, SecretText, Settings


class LookbackSettings(Settings):
    """Read rows shortly below the mark again, and drop those that were read before."""

    lookback: Duration | int | str = Field(examples=["10m"])
    """How far below the mark: a duration for timestamps and dates (`10m`), a number for numbers (`1000`)."""


class JdbcSettings(Settings):
    """How Spark's JDBC reader reaches a database that has no Arrow driver."""

    jar: str | None = None
    """Path of the driver's jar."""
    driver: str | None = None
    """Class of the driver, when it does not register itself."""
    fetch_rows: int = Field(default=10_000, gt=0)
    """Rows per round trip."""


class SqlSourceSettings(Settings):
    """Poll tables of a SQL database by a column that grows."""

    url: SecretText = Field(examples=["${PG_URL}"])
    """`postgresql://…`, `sqlite:///shop.db`, `mysql://…`, `mariadb://…`, `mssql://…`, `oracle://…`, or `jdbc:…`."""
    table: str | None = None
    """One table, `schema.name`, exactly as the database spells it; `"odd.schema".name` where a name holds a dot."""
    tables: list[str] | None = None
    """Several tables, each one stream; `sales.*` matches by name, and new tables that match are added."""
    query: str | None = None
    """A SELECT instead of a table."""
    cursor: str = Field(examples=["updated_at"])
    """The column that grows: integer, decimal, date, timestamp with or without zone, string or UUID."""
    start: int | str | None = None
    """First run: read rows above this value. Without it everything; `latest`: only rows from now on."""
    nulls: Literal["fail", "ignore", "read"] = "ignore"
    """Rows whose cursor is NULL: stop, leave out with a warning, or read (each once)."""
    late: Literal["auto", "scan", "off"] | LookbackSettings = "auto"
    """How rows that commit late are found; see docs/guarantees.md#g6. `auto`: on PostgreSQL tables all of them, elsewhere those that share the mark's value. `scan`: PostgreSQL, for cursors that applications fill; scans the whole table and also reads every changed row again. `off`: such rows are lost."""
    columns: list[str] | None = None
    """Only these columns. The cursor and `key` are always read."""
    as_text: list[str] = []
    """Columns to read as text, for values that their type cannot keep (infinity, NaN, BC dates)."""
    where: str | None = None
    """A condition in the database's own SQL, added to every read."""
    key: list[str] | None = None
    """Columns that identify a row, where the table has no primary key."""
    max_rows: int | None = Field(default=None, gt=0)
    """At most about this many rows per cycle; rows that share a cursor value stay together, late rows are always read."""
    splits: int | None = Field(default=None, gt=0)
    """Parallel reads per stream; by default from the number of rows and the cores."""
    jdbc: JdbcSettings = JdbcSettings()
    """Only for databases that are read through JDBC."""

    @model_validator(mode="after")
    def _one_subject(self) -> SqlSourceSettings:
        if sum(x is not None for x in (self.table, self.tables, self.query)) != 1:
            raise ValueError("write exactly one of table, tables and query")
        return self
