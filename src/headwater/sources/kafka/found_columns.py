"""Columns found in JSON messages where nobody wrote a schema.

Every message of a window is looked at before it is read, so no field is ever missed. What is found becomes part of the
mark: it survives restarts, and a window that is read again has the columns of the first try (G5). Later values that do
not fit their column are rejects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from headwater.model.errors import InputError
from headwater.sources.json.found import Columns, Kinds, check_names, observe, with_new
from headwater.sources.kafka.consuming import OffsetRange, Reading, messages


def columns_after(
    known: Mapping[str, Columns], ranges: Iterable[OffsetRange], reading: Reading, taken: set[str]
) -> dict[str, Columns]:
    """The columns of every topic, with what the messages of the ranges bring."""
    made = dict(known)
    for topic, group in groupby(ranges, key=lambda each: each.topic):
        kinds: Kinds = {}
        for wanted in group:
            for batch in messages(reading, wanted):
                observe((message.value() for message in batch), kinds)
        made[topic] = with_new(known.get(topic, {}), kinds)
        if not made[topic]:
            raise InputError(f"{topic}: no message of the window is a JSON object with a field", hint="write schema: …")
        check_names(topic, made[topic], taken)
    return made
