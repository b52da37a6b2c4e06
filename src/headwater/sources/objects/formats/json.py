"""JSON objects on lines, or documents: their rows, their inferred columns, and where they stand in the content.

Lines: each is one JSON object, blank lines are skipped, and a row's number is that of its line. Documents: JSON
objects and arrays of them, one after the other over any number of lines; every object, and every element of an array,
is a row.

Many objects are joined and parsed at once by Arrow where all their lines are plain: from `{` to `}`. Its result
counts only if it has exactly as many rows as there are lines (`sources/json/columns.py` says why that is proof
enough). Whatever is not plain, and whatever Arrow refuses, is parsed strictly, by the same rules as Kafka messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from headwater.model.bisect import bisect
from headwater.sources.json.columns import SeenTypes, guess_types, merge_seen_types, observe
from headwater.sources.json.decoder import ArrowJson, JsonDecoder, odd_lines
from headwater.sources.json.strict import document
from headwater.sources.objects.content import BadRow, Content, ObjectFailed
from headwater.sources.objects.formats.base import Decoded, DecodedRows, chunks, decode_chunks, decode_one, strip_bom
from headwater.sources.values import Misfit

_REFUSED_FRACTION = 4  # joining stops where Arrow refuses more than every fourth object
_REFUSED_MINIMUM = 8


class JsonObjects:
    """For one schema; `as_`: auto, lines or document."""

    def __init__(self, schema: pa.Schema, as_: str) -> None:
        self._schema, self._as = schema, as_
        self._arrow, self._values = ArrowJson(schema), JsonDecoder(schema)
        self._join = self._arrow.usable and as_ != "document"

    def decode(self, contents: Sequence[Content]) -> Decoded:
        decoded = self._decoded([strip_bom(content[:]) for content in contents])
        without_json = _without_json(decoded)
        decoded.failed.update(without_json)
        decoded.bad = [row for row in decoded.bad if row.owner not in without_json]
        return decoded

    def pieces(self, content: Content) -> Iterator[Decoded]:
        if not has_lines(content, self._as):
            yield decode_one(self, content)
            return
        lines, seen = JsonObjects(self._schema, "lines"), Decoded()
        for piece in decode_chunks(content, lines.lines):
            seen.parts += [part for part in piece.parts if not seen.parts]
            seen.bad += [] if seen.parts else piece.bad
            yield piece
        if failed := _without_json(seen):
            raise failed[0]

    def lines(self, chunk: bytes) -> Decoded:
        """Lines from the middle of an object; whether the whole object is JSON is not decided here."""
        return self._decoded([chunk])

    def element(self, value: bytes) -> Decoded:
        """One line, or one element of a document."""
        return Decoded().add_parsed(self._values.parse([value]), [value], [(0, 1)])

    def _decoded(self, texts: Sequence[bytes]) -> Decoded:
        decoded = Decoded()
        others = self._joined(texts, decoded) if self._join else range(len(texts))
        self._decode_strictly(texts, others, decoded)
        return decoded

    def _joined(self, texts: Sequence[bytes], decoded: Decoded) -> list[int]:
        """Parse plain objects; return the numbers of the others, and of those that Arrow refuses."""
        lines = joined_lines(texts)
        plain, refused = lines.plain, []
        parse, refused_object = partial(self._parse_plain, lines), partial(self._refused_object, lines)
        for part in bisect(plain, parse, bad_item=refused_object) if plain else ():
            if part.result is None:
                refused += part.items
            else:
                decoded.parts.append(part.result)
        self._join = len(refused) * _REFUSED_FRACTION <= len(plain) + _REFUSED_MINIMUM
        return sorted([*lines.odd, *refused])

    def _parse_plain(self, lines: JoinedLines, numbers: list[int]) -> DecodedRows | None:
        counts = lines.counts[numbers]
        rows = self._arrow.parse_lines(lines.of(numbers), int(counts.sum()))
        return None if rows is None else DecodedRows(rows, np.array(numbers), counts)

    def _refused_object(self, lines: JoinedLines, numbers: list[int]) -> int | None:
        """The object with the row that Arrow reported, as an index of these."""
        row = self._arrow.bad_row
        if row is None:
            return None
        return min(int(np.searchsorted(np.cumsum(lines.counts[numbers]), row, side="right")), len(numbers) - 1)

    def _decode_strictly(self, texts: Sequence[bytes], some: Sequence[int], decoded: Decoded) -> None:
        values, locations = split_objects(texts, some, self._as, decoded)
        if values:
            decoded.add_parsed(self._values.parse(values), values, locations)


def _without_json(decoded: Decoded) -> dict[int, ObjectFailed]:
    """Objects without a single JSON object: they fail as a whole, instead of row by row."""
    if not decoded.bad:
        return {}
    with_rows = {owner for part in decoded.parts for owner in part.owners[part.counts > 0].tolist()}
    by_owner: dict[int, list[BadRow]] = {}
    for row in decoded.bad:
        if row.owner not in with_rows:
            by_owner.setdefault(row.owner, []).append(row)
    return {
        owner: ObjectFailed(f"no JSON object in it: {bad[0].reason}")
        for owner, bad in by_owner.items()
        if not any(is_object(row.payload) for row in bad)
    }


_NEWLINE = ord("\n")


@dataclass(frozen=True)
class JoinedLines:
    """Objects joined with a newline after each."""

    ended: list[bytes]  # each object
    joined: bytes  # all of them
    counts: np.ndarray  # the lines of each object
    odd: frozenset[int]  # objects with lines that do not begin with `{` and end with `}`

    @property
    def plain(self) -> list[int]:
        """All other objects."""
        return [number for number in range(len(self.ended)) if number not in self.odd]

    def of(self, numbers: Sequence[int]) -> bytes:
        """Some objects."""
        return self.joined if len(numbers) == len(self.ended) else b"".join([self.ended[n] for n in numbers])


def joined_lines(texts: Sequence[bytes]) -> JoinedLines:
    """Does not parse the lines."""
    ended = [text if text[-1:] == b"\n" else text + b"\n" for text in texts]
    joined = b"".join(ended)
    if b"\r" in joined:
        ended = [text.replace(b"\r\n", b"\n") for text in ended]
        joined = b"".join(ended)
    ends = np.cumsum(np.fromiter(map(len, ended), np.int64, len(ended)))
    letters = np.frombuffer(joined, np.uint8)
    newlines = np.flatnonzero(letters == _NEWLINE)
    counts = np.diff(np.searchsorted(newlines, ends), prepend=0)
    odd = np.searchsorted(ends, newlines[odd_lines(letters, newlines)], side="right")
    return JoinedLines(ended, joined, counts, frozenset(odd.tolist()))


def infer_json(contents: Sequence[Content], as_: str, large: int) -> SeenTypes:
    """The types seen in all fields, in the order of appearance. Unreadable objects add none."""
    seen_types: SeenTypes = {}
    together: list[bytes] = []
    for content in contents:
        if len(content) > large and has_lines(content, as_):
            for number, chunk in enumerate(chunks(content)):
                _observe([chunk if number else strip_bom(chunk)], "lines", seen_types)
        else:
            together.append(strip_bom(content[:]))
    _observe(together, as_, seen_types)
    return seen_types


def _observe(texts: Sequence[bytes], as_: str, seen_types: SeenTypes) -> None:
    if not texts:
        return
    if as_ == "document":
        for text in texts:
            _observe_strictly(text, as_, seen_types)
        return
    lines = joined_lines(texts)
    for part in bisect(range(len(texts)), partial(_guess, lines)):
        if part.result is None:
            _observe_strictly(lines.ended[part.begin], as_, seen_types)
        else:
            merge_seen_types(seen_types, part.result)


def _guess(lines: JoinedLines, numbers: range) -> SeenTypes | None:
    if not lines.odd.isdisjoint(numbers):
        return None
    return guess_types(lines.of(numbers), int(lines.counts[numbers.start : numbers.stop].sum()))


def _observe_strictly(text: bytes, as_: str, seen_types: SeenTypes) -> None:
    try:
        observe((value for _, value in elements(text, as_)), seen_types)
    except ObjectFailed:
        return  # it fails when it is read, and says so


_BLANK = b" \t\r"
_SPACE = re.compile(r"[ \t\r\n]*")
_NOT_SPACE = re.compile(rb"[^ \t\r\n]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # how it begins
scan_value = json.JSONDecoder().raw_decode

Element = tuple[int, bytes]  # number, from 1; text


def elements(text: bytes, as_: str) -> list[Element]:
    """Lines that are not blank, or the elements of documents. Raises ObjectFailed for broken documents."""
    if has_lines(text, as_):
        return _line_elements(text)
    try:
        return list(enumerate(_document_elements(text), start=1))
    except ObjectFailed:
        lines = _line_elements(text) if as_ == "auto" else []
        # Lines with a broken first one; in a broken document few lines are JSON objects.
        if lines and 2 * sum(is_object(line) for _, line in lines) >= len(lines):
            return lines
        raise


def split_objects(
    texts: Sequence[bytes], owners: Iterable[int], as_: str, decoded: Decoded
) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The elements of these objects, and the object and number of each. Broken documents fail in `decoded`."""
    values: list[bytes] = []
    locations: list[tuple[int, int]] = []
    for owner in owners:
        try:
            numbered = elements(texts[owner], as_)
        except ObjectFailed as failed:
            decoded.failed[owner] = failed
            continue
        values += [value for _, value in numbered]
        locations += [(owner, number) for number, _ in numbered]
    return values, locations


def has_lines(content: Content, as_: str) -> bool:
    """True if an object's elements are its lines; `as_`: auto, lines or document."""
    return as_ == "lines" or (as_ == "auto" and is_lines(content))


def is_lines(content: Content) -> bool:
    """True if the first line is a JSON object; an object over several lines is a document."""
    first = _NOT_SPACE.search(content)
    if not first or first[0] != b"{":
        return False
    end = content.find(b"\n", first.start())
    return is_object(content[first.start() : end if end >= 0 else len(content)])


def is_object(text: bytes) -> bool:
    try:
        document(text)
    except Misfit:
        return False
    return True


def _line_elements(text: bytes) -> list[Element]:
    lines = enumerate(text.split(b"\n"), start=1)
    return [(number, line) for number, raw_line in lines if (line := raw_line.strip(_BLANK))]


def _document_elements(text: bytes) -> Iterator[bytes]:
    try:
        string = text.decode()
        position = skip_space(string, 0)
        while position < len(string):
            if string[position] != "[":
                end = scan_value(string, position)[1]
                yield string[position:end].encode()
            else:
                end = yield from _array_elements(string, position)
            position = skip_space(string, end)
    except UnicodeDecodeError as error:
        other = "UTF-16; only UTF-8 is supported" if text[:2] in _UTF16 else f"not UTF-8 at byte {error.start:,}"
        raise ObjectFailed(other) from None
    except json.JSONDecodeError as error:
        raise ObjectFailed(f"no JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise ObjectFailed("nested too deeply") from None


def _array_elements(string: str, position: int) -> Generator[bytes, None, int]:
    """The elements; returns the end of the array."""
    position = skip_space(string, position + 1)
    if string[position : position + 1] == "]":
        return position + 1
    while True:
        end = scan_value(string, position)[1]
        yield string[position:end].encode()
        after = skip_space(string, end)
        sign = string[after : after + 1]
        if sign == "]":
            return after + 1
        if sign != ",":
            raise json.JSONDecodeError("expected ',' or ']'", string, after)
        position = skip_space(string, after + 1)


def skip_space(string: str, position: int) -> int:
    """The position of the next character that JSON does not call white space."""
    space = _SPACE.match(string, position)
    return space.end() if space else position
