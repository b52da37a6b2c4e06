"""The texts that describe settings: read from the source when asked for, so that a run does not pay for them."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Mapping
from functools import cache

from headwater.config.frozen import Settings


@cache
def describe_fields(model: type[Settings]) -> Mapping[str, str]:
    """Setting → the text that stands under it, in its class or in one that it extends."""
    described: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, Settings):
            described |= _described_in(owner)
    return described


def _described_in(model: type[Settings]) -> Mapping[str, str]:
    tree = ast.parse(inspect.getsource(inspect.getmodule(model)))  # type: ignore[arg-type]
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model.__name__)
    described = {}
    for statement, following in itertools.pairwise(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = following.value if isinstance(following, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                described[statement.target.id] = inspect.cleandoc(text.value)
    return described


def describe_model(model: type[Settings]) -> str:
    """The class's own text."""
    return inspect.cleandoc(model.__doc__ or "")
