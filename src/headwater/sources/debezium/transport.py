"""What is needed of messages, whatever brings them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

OLD_KEY_HEADER = "__debezium.oldkey"


@dataclass(frozen=True)
class Messages:
    """Events, in the order in which they are there. Keys and headers are asked for only where they are needed."""

    values: Sequence[bytes | None]
    key: Callable[[int], bytes | None]  # of the message at that index
    old_key: Callable[[int], bytes | None]  # the header of an insert that is a change of key
