"""The ordered types a watermark column can have, and their exact JSON forms (W2)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from typing import Any

CursorValue = int | decimal.Decimal | dt.date | dt.datetime | str | uuid.UUID


class CursorType(enum.Enum):
    """A column type with a total order that Python and the database agree on."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"  # without zone: a wall clock, microseconds kept
    TIMESTAMPTZ = "timestamptz"  # an instant, kept in UTC, microseconds kept
    STRING = "string"  # in byte order of UTF-8, never by a locale
    UUID = "uuid"

    def order(self, value: CursorValue) -> Any:
        """What Python compares; strings by code point, which is the byte order of UTF-8."""
        return value.int if isinstance(value, uuid.UUID) else value

    def to_json(self, value: CursorValue) -> int | str:
        """An integer as a JSON number, all else as a text that keeps every digit."""
        if self is CursorType.INTEGER:
            return int(value)  # type: ignore[arg-type]
        return self.to_text(value)

    def to_text(self, value: CursorValue) -> str:
        if isinstance(value, dt.datetime):
            # One instant has one text, whatever zone a driver gave it in.
            moment = value.astimezone(dt.UTC) if value.tzinfo is not None else value
            return moment.isoformat(timespec="microseconds")
        if isinstance(value, dt.date):
            return value.isoformat()
        return str(value)

    def from_json(self, data: int | str) -> CursorValue:
        """The value of `to_json`, or of a user's `start:` and `--to`. Raises ValueError with what was expected."""
        if isinstance(data, bool):
            raise ValueError(f"expected {self.value}, got {data!r}")
        text = str(data).strip() if self is not CursorType.STRING else str(data)
        try:
            return self._parse(text)
        except (ValueError, OverflowError, decimal.InvalidOperation) as error:
            raise ValueError(f"expected {self.value} (for example {_EXAMPLES[self]}), got {data!r}") from error

    def _parse(self, text: str) -> CursorValue:  # noqa: C901, PLR0911 - one case per type
        match self:
            case CursorType.INTEGER:
                return int(text)
            case CursorType.DECIMAL:
                number = decimal.Decimal(text)
                if not number.is_finite():
                    raise ValueError(text)
                return number
            case CursorType.DATE:
                return dt.date.fromisoformat(text)
            case CursorType.TIMESTAMP:
                moment = dt.datetime.fromisoformat(text)
                if moment.tzinfo is not None:
                    raise ValueError("a timestamp without zone")
                return moment
            case CursorType.TIMESTAMPTZ:
                moment = dt.datetime.fromisoformat(text)
                if moment.tzinfo is None:
                    raise ValueError("a zone is missing")
                return moment.astimezone(dt.UTC)
            case CursorType.STRING:
                return text
            case CursorType.UUID:
                return uuid.UUID(text)


_EXAMPLES = {
    CursorType.INTEGER: "-1",
    CursorType.DECIMAL: "12.50",
    CursorType.DATE: "2026-01-31",
    CursorType.TIMESTAMP: "2026-01-31T12:00:00",
    CursorType.TIMESTAMPTZ: "2026-01-31T12:00:00+00:00",
    CursorType.STRING: "A-1001",
    CursorType.UUID: "0190163d-8694-739b-aea5-966c26f8ad91",
}
