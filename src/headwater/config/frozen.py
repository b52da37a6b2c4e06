"""The kind of value that all settings are: frozen, and closed to unknown names (G12)."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from headwater.model.secret import Secret

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class Settings(BaseModel):
    """Base of every settings value."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, use_attribute_docstrings=True)


def parse_duration(value: object) -> object:
    """`5s`, `1h30m`, `250ms` → timedelta; anything else is left for pydantic to refuse."""
    if isinstance(value, str):
        if not _DURATION.fullmatch(value.strip()):
            raise ValueError(f"{value!r} is not a duration; write for example 5s, 10m or 1h30m")
        return dt.timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(value)))
    if isinstance(value, dt.timedelta):
        return value
    raise ValueError(f"{value!r} is not a duration; write for example 5s, 10m or 1h30m")


Duration = Annotated[dt.timedelta, BeforeValidator(parse_duration, json_schema_input_type=str)]


class SecretText(Secret):
    """A Secret as a settings field: any text in the file, **** wherever it is shown."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._check, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: GetJsonSchemaHandler) -> dict[str, object]:
        return {"type": "string", "writeOnly": True}

    @classmethod
    def _check(cls, value: object) -> SecretText:
        if isinstance(value, SecretText):
            return value
        if not isinstance(value, str):
            raise ValueError("expected a text")  # the value stays out of the message (G11)
        return cls(value)
