"""The JSON objects within the content of an object of the store, as they are written there."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator

from headwater.sources.json.strict import Misfit, document
from headwater.sources.objects.contents import Content
from headwater.sources.objects.failures import ObjectFailed

_BLANK = b" \t\r"
_SPACE = re.compile(r"[ \t\r\n]*")
_NOT_SPACE = re.compile(rb"[^ \t\r\n]")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # how it begins
_scan = json.JSONDecoder().raw_decode

Element = tuple[int, bytes]  # number, from 1; text


def elements(text: bytes, as_: str) -> list[Element]:
    """Lines that are not blank, or what documents hold. Raises ObjectFailed where documents make no sense."""
    if as_ == "lines" or (as_ == "auto" and is_lines(text)):
        return _lines(text)
    try:
        return list(enumerate(_documents(text), start=1))
    except ObjectFailed:
        lines = _lines(text) if as_ == "auto" else []
        # Lines whose first one is broken; a document that is broken has few that are objects by themselves.
        if lines and 2 * sum(is_object(line) for _, line in lines) >= len(lines):
            return lines
        raise


def is_lines(content: Content) -> bool:
    """Whether the first line is a JSON object by itself; an object over several lines is a document."""
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


def _lines(text: bytes) -> list[Element]:
    lines = enumerate(text.split(b"\n"), start=1)
    return [(number, line) for number, whole in lines if (line := whole.strip(_BLANK))]


def _documents(text: bytes) -> Iterator[bytes]:
    try:
        string = text.decode()
        position = _skip(string, 0)
        while position < len(string):
            if string[position] != "[":
                end = _scan(string, position)[1]
                yield string[position:end].encode()
            else:
                end = yield from _array(string, position)
            position = _skip(string, end)
    except UnicodeDecodeError as error:
        other = "UTF-16; only UTF-8 can be read" if text[:2] in _UTF16 else f"not UTF-8 at byte {error.start:,}"
        raise ObjectFailed(other) from None
    except json.JSONDecodeError as error:
        raise ObjectFailed(f"no JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise ObjectFailed("nested too deeply") from None


def _array(string: str, position: int) -> Generator[bytes, None, int]:
    """The elements; returns where the array ends."""
    position = _skip(string, position + 1)
    if string[position : position + 1] == "]":
        return position + 1
    while True:
        end = _scan(string, position)[1]
        yield string[position:end].encode()
        after = _skip(string, end)
        sign = string[after : after + 1]
        if sign == "]":
            return after + 1
        if sign != ",":
            raise json.JSONDecodeError("expected ',' or ']'", string, after)
        position = _skip(string, after + 1)


def _skip(string: str, position: int) -> int:
    found = _SPACE.match(string, position)
    return found.end() if found else position
