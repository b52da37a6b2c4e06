"""JSON objects on lines, or documents.

Lines: each is one JSON object, blank ones are none, and a row's number is that of its line. Documents: JSON objects and
arrays of them, one after the other over any number of lines; every object, and every element of an array, is a row.

Many objects are joined and parsed at once by Arrow where all their lines are plain: from `{` to `}`. Its result counts
only if it has exactly as many rows as there are lines (`sources/json/fast.py` says why that is proof enough). Whatever is
not plain, and whatever Arrow refuses, is looked at more closely, by the same rules as messages of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from headwater.sources.json.fast import FastJson
from headwater.sources.json.values import JsonValues
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import BadRow, ObjectFailed
from headwater.sources.objects.formats.decoded import Decoded, Part
from headwater.sources.objects.formats.json_elements import elements, is_lines, is_object
from headwater.sources.objects.formats.json_lines import JoinedLines, joined_lines
from headwater.sources.objects.formats.lines import in_chunks, unmarked

_MOSTLY = 4  # every fourth
_FEW = 8


class JsonObjects:
    """For one schema; `as_`: auto, lines or document."""

    def __init__(self, schema: pa.Schema, as_: str) -> None:
        self._schema, self._as = schema, as_
        self._fast, self._values = FastJson(schema), JsonValues(schema)
        self._join = self._fast.usable and as_ != "document"

    def decode(self, contents: Sequence[Content]) -> Decoded:
        made = self._decoded([unmarked(content[:]) for content in contents])
        senseless = _senseless(made)
        made.failed.update(senseless)
        made.bad = [row for row in made.bad if row.owner not in senseless]
        return made

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if self._as == "document" or (self._as == "auto" and not is_lines(content)):
            made = self.decode([content])
            if made.failed:
                raise made.failed[0]
            yield made
            return
        lines, seen = JsonObjects(self._schema, "lines"), Decoded()
        for piece in in_chunks(content, lines.lines):
            seen.parts += [part for part in piece.parts if not seen.parts]
            seen.bad += [] if seen.parts else piece.bad
            yield piece
        if failed := _senseless(seen):
            raise failed[0]

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the midst of an object; whether all of it makes sense is not theirs to say."""
        return self._decoded([chunk])

    def element(self, value: bytes) -> Decoded:
        """One line, or one element of a document, by itself."""
        made = Decoded()
        self._parse([value], [(0, 1)], made)
        return made

    def _decoded(self, texts: Sequence[bytes]) -> Decoded:
        made = Decoded()
        closer = self._joined(texts, made) if self._join else range(len(texts))
        self._closer(texts, closer, made)
        return made

    def _joined(self, texts: Sequence[bytes], made: Decoded) -> list[int]:
        """Parse what is plain; give the numbers of the objects that are not, or that Arrow refuses."""
        found = joined_lines(texts)
        if not found.odd and self._parsed(found.joined, np.arange(len(texts)), found.lines, made):
            return []
        plain = found.plain
        refused = list(self._refused(found, plain, made))
        self._join = len(refused) * _MOSTLY <= len(plain) + _FEW
        return sorted([*found.odd, *refused])

    def _refused(self, found: JoinedLines, plain: list[int], made: Decoded) -> Iterator[int]:
        """Parse what Arrow takes, in ever smaller parts; give the objects that it refuses by themselves, too."""
        waiting = [plain]
        while waiting:
            some = waiting.pop()
            joined = b"".join([found.ended[number] for number in some])
            if not some or self._parsed(joined, np.array(some), found.lines[some], made):
                continue
            if len(some) == 1:
                yield some[0]
                continue
            at = self._fast.stopped_at
            if at is None:
                waiting += [some[len(some) // 2 :], some[: len(some) // 2]]
            else:
                place = min(int(np.searchsorted(np.cumsum(found.lines[some]), at, side="right")), len(some) - 1)
                waiting += [some[place + 1 :], some[place : place + 1], some[:place]]

    def _parsed(self, joined: bytes, owners: np.ndarray, counts: np.ndarray, made: Decoded) -> bool:
        rows = self._fast.parse_lines(joined, int(counts.sum()))
        if rows is not None:
            made.parts.append(Part(rows, owners, counts))
        return rows is not None

    def _closer(self, texts: Sequence[bytes], some: Sequence[int], made: Decoded) -> None:
        values: list[bytes] = []
        places: list[tuple[int, int]] = []
        for owner in some:
            try:
                found = elements(texts[owner], self._as)
            except ObjectFailed as failed:
                made.failed[owner] = failed
                continue
            values += [value for _, value in found]
            places += [(owner, number) for number, _ in found]
        if values:
            self._parse(values, places, made)

    def _parse(self, values: list[bytes], places: list[tuple[int, int]], made: Decoded) -> None:
        parsed = self._values.parse(values)
        made.bad += [BadRow(*places[index], reason, values[index]) for index, reason in parsed.rejected]
        kept = np.delete(np.array(places, np.int64), [index for index, _ in parsed.rejected], axis=0)
        begin = 0
        for rows in parsed.batches:
            made.parts.append(Part.of_rows(rows, *kept[begin : begin + rows.num_rows].T))
            begin += rows.num_rows


def _senseless(made: Decoded) -> dict[int, ObjectFailed]:
    """Objects of which nothing at all is a JSON object: they are no JSON, rather than full of bad rows."""
    if not made.bad:
        return {}
    with_rows = {owner for part in made.parts for owner in part.owners[part.counts > 0].tolist()}
    by_owner: dict[int, list[BadRow]] = {}
    for row in made.bad:
        if row.owner not in with_rows:
            by_owner.setdefault(row.owner, []).append(row)
    return {
        owner: ObjectFailed(f"no JSON object in it: {bad[0].reason}")
        for owner, bad in by_owner.items()
        if not any(is_object(row.payload) for row in bad)
    }
