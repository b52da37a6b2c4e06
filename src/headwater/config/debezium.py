"""Settings of `format: debezium`, for every source that can bring such events."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from headwater.config.frozen import Settings

TimeUnit = Literal["micros", "millis", "nanos", "iso"]


class DebeziumSettings(Settings):
    """What Debezium's events do not say themselves. Events with schemas in them say most of it."""

    key: list[str] | dict[str, list[str]] = Field(default=[], examples=["[id]"])
    """The key's columns where messages have no key of their own: for all streams, or per stream: `{shop.public.orders: [id]}`."""
    type_changes: Literal["refuse", "new_column"] = "refuse"
    """A column that gets another type, not only a wider one. refuse: the pipeline stops. new_column: values go on in a column `name__type`."""
    unavailable: str = Field(default="__debezium_unavailable_value", min_length=1)
    """What stands for values that an update did not change and PostgreSQL did not send (the connector's `unavailable.value.placeholder`)."""
    times: TimeUnit | dict[str, TimeUnit] = Field(default="micros", examples=["{created: millis}"])
    """For `schema` over events without schemas: how `timestamp_ntz` is written, and with iso also `date`, which is a number of days otherwise. For all columns, or by column: the connector's adaptive modes write `timestamp(3)` and shorter ones in millis, others in micros."""
    decimals: Literal["base64", "text"] = "base64"
    """For `schema` over events without schemas: how `decimal` is written. base64: by `decimal.handling.mode: precise`; text: by string and double."""
    binary: Literal["base64", "base64url", "hex"] = "base64"
    """For `schema`: how `binary` is written (the connector's `binary.handling.mode`)."""

    @field_validator("key")
    @classmethod
    def _names(cls, key: list[str] | dict[str, list[str]]) -> list[str] | dict[str, list[str]]:
        for names in key.values() if isinstance(key, dict) else [key]:
            if len(set(names)) != len(names) or "" in names:
                raise ValueError("a key names each of its columns once")
        return key

    def of_column(self, name: str) -> DebeziumSettings:
        """What holds for one column."""
        if not isinstance(self.times, dict):
            return self
        return self.model_copy(update={"times": self.times.get(name, "micros")})

    def key_of(self, stream: str) -> tuple[str, ...]:
        """The key's columns as written; empty: the messages say them."""
        return tuple(self.key.get(stream, []) if isinstance(self.key, dict) else self.key)
