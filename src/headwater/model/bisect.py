"""Converts a batch at once; where that fails, its halves, down to the items that fail.

One bad item then costs a few more passes over the batch, not one call per item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

Result = TypeVar("Result")


class _Batch(Protocol):
    """Lists, ranges, Arrow's arrays and record batches."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Any: ...


Batch = TypeVar("Batch", bound=_Batch)


@dataclass(frozen=True)
class Part(Generic[Batch, Result]):
    """Some items of a batch, which were converted or refused together."""

    begin: int  # the index of the first item
    items: Batch
    result: Result | None  # None: refused
    error: Exception | None = None  # of a refusal by exception


def bisect(
    batch: Batch,
    convert: Callable[[Batch], Result | None],
    errors: type[Exception] | tuple[type[Exception], ...] = (),
    *,
    smallest: int = 1,
    bad_item: Callable[[Batch], int | None] | None = None,
) -> Iterator[Part[Batch, Result]]:
    """Yield all parts of the batch, in order. A refused part has at most `smallest` items.

    `convert` refuses a batch by None, or by one of these errors. `bad_item` may know the index of the item for which
    it refused the batch: then the batch is cut around that item.
    """
    waiting = [(0, batch)]
    while waiting:
        begin, items = waiting.pop()
        error: Exception | None = None
        result: Result | None = None
        try:
            result = convert(items)
        except errors as refusal:
            error = refusal
        if result is not None or len(items) <= smallest:
            yield Part(begin, items, result, error)
            continue
        bad = bad_item(items) if bad_item else None
        edges = [0, len(items) // 2, len(items)] if bad is None else [0, bad, bad + 1, len(items)]
        waiting += [(begin + low, items[low:high]) for low, high in reversed([*pairwise(edges)]) if low < high]
