"""Marks that an operator names in a rewind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.model.errors import BadPosition
from headwater.model.marks import ColumnMark
from headwater.sources.sql.names import did_you_mean
from headwater.sources.sql.relation import Relation


def marks_at(
    text: str, relations: Sequence[Relation], marks: Mapping[str, ColumnMark], *, one: bool
) -> dict[str, ColumnMark]:
    """A value for all streams, or `stream=value[,stream=value]`; streams that are not named stay where they are.

    `marks` are those whose transaction numbers still mean something; the others are made anew from the value.
    """
    streams = {relation.stream: relation for relation in relations}
    named = {} if one else _named(text, streams)
    if not named:
        return {stream: _at(relation, text, marks.get(stream)) for stream, relation in streams.items()}
    moved = dict(marks)
    for stream, value in named.items():
        moved[stream] = _at(streams[stream], value, marks.get(stream))
    return moved


def _named(text: str, streams: Mapping[str, Relation]) -> dict[str, str]:
    if "=" not in text:
        return {}
    found = {}
    for part in text.split(","):
        stream, sign, value = part.partition("=")
        if not sign or stream.strip() not in streams:
            raise BadPosition(
                f"{part.strip()!r} names no stream and value",
                hint=f"write stream=value; {did_you_mean(stream.strip(), list(streams))}",
            )
        found[stream.strip()] = value.strip()
    return found


def _at(relation: Relation, text: str, mark: ColumnMark | None) -> ColumnMark:
    subject = relation.subject
    try:
        value = subject.kind.from_json(text)
    except ValueError as error:
        raise BadPosition(
            f"{relation.stream}: {error}", hint="write start, latest, or a value of the cursor's type"
        ) from None
    if mark is None or (mark.column, mark.type) != (subject.cursor, subject.kind):
        return ColumnMark(subject.cursor, subject.kind, value)
    from headwater.sources.sql.by_snapshot import rewound_snapshot  # noqa: PLC0415 - only a rewind pays

    return rewound_snapshot(mark, value)
