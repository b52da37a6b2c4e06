"""The base of all settings: frozen, and closed to unknown names (G12); durations, sizes and secrets."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import itertools
import re
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from headwater.model.secret import MASK, Secret

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_NOT_A_DURATION = "not a duration; write for example 5s, 10m or 1h30m"
_SECRET_NAME = re.compile(r"(?i)password|passwd|secret|token|credential|access.?key|account.?key|private.?key")


class Settings(BaseModel):
    """Base of every settings value.

    A text under an attribute is its description, for `headwater schema` and docs/reference.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    called: ClassVar[str] = "setting"  # the noun for errors about an unknown name
    removed: ClassVar[Mapping[str, str]] = {}  # a former setting → what to do instead

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        # pydantic reads `true` as 1; in a settings file that is a mistake (G12).
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, bool) and bool not in (typing.get_args(annotation) or (annotation,)):
            raise PydanticCustomError("no_boolean", "neither true nor false belongs here")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        # G11: options that are passed on as they are (a catalog's, Spark's) may hold keys and tokens.
        for name, value in super().__repr_args__():
            yield name, _without_secrets(value) if isinstance(value, dict) else value


class OneKind(Settings):
    """A mapping in which exactly one field is written: its name is the type."""

    @model_validator(mode="before")
    @classmethod
    def _name_alone_is_enough(cls, data: object) -> object:
        # `- console:` means the same as `- console: {}`.
        if isinstance(data, dict) and len(data) == 1 and None in data.values():
            return {name: {} for name in data}
        return data

    @model_validator(mode="after")
    def _one_kind(self) -> OneKind:
        kinds = list(type(self).model_fields)
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(f"write exactly one {self.called} here: {one_of(kinds)}")
        return self

    @property
    def kind(self) -> str:
        """The name of the one field that is written."""
        return next(kind for kind in type(self).model_fields if getattr(self, kind) is not None)


def one_of(names: typing.Sequence[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def looks_secret(name: str) -> bool:
    """Whether an option of that name may hold a secret (G11)."""
    return bool(_SECRET_NAME.search(name))


def parse_duration(value: object) -> dt.timedelta:
    """`5s`, `1h30m`, `250ms` → timedelta. The value stays out of the message: it may come from a variable (G11)."""
    if isinstance(value, dt.timedelta):
        return value
    if isinstance(value, str) and _DURATION.fullmatch(value.strip()):
        return dt.timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in _DURATION_PART.findall(value)))
    raise ValueError(_NOT_A_DURATION)


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


def _without_secrets(options: dict[str, object]) -> dict[str, object]:
    return {name: MASK if looks_secret(str(name)) else value for name, value in options.items()}


@cache
def describe_fields(model: type[Settings]) -> Mapping[str, str]:
    """Setting → the text under it, in its class or in a base class."""
    descriptions: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, Settings):
            descriptions |= _class_descriptions(owner)
    return descriptions


def _class_descriptions(model: type[Settings]) -> Mapping[str, str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(model)))  # type: ignore[arg-type]
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model.__name__)
    descriptions = {}
    for statement, next_statement in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = next_statement.value if isinstance(next_statement, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                descriptions[statement.target.id] = inspect.cleandoc(text.value)
    return descriptions


def describe_model(model: type[Settings]) -> str:
    """The class's own text."""
    return inspect.cleandoc(model.__doc__ or "")


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|TB)?", re.IGNORECASE)
_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _size(value: object) -> object:
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return int(float(match[1]) * _SIZES[(match[2] or "B").upper()]) if match else value


Bytes = Annotated[int, BeforeValidator(_size)]
