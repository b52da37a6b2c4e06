"""Contents as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.sources.objects.contents import Content
from headwater.sources.objects.formats.decoded import Decoded

CHUNK = 8 << 20
_MARK = b"\xef\xbb\xbf"  # of UTF-8, by editors that put it in front


def chunks(content: Content, size: int = CHUNK) -> Iterator[bytes]:
    """About `size` bytes each, and whole lines: a chunk ends behind a newline, or with the content."""
    begin = 0
    while begin < len(content):
        end = len(content)
        if begin + size < end:
            end = content.rfind(b"\n", begin, begin + size) + 1 or content.find(b"\n", begin + size) + 1 or end
        yield content[begin:end]
        begin = end


def in_chunks(content: Content, decode: Callable[[bytes], Decoded]) -> Iterator[Decoded]:
    """All lines of an object, chunk by chunk, with the numbers that they have in it."""
    before = 0
    for chunk in chunks(content):
        yield decode(chunk if before else unmarked(chunk)).later(before)
        before += chunk.count(b"\n")


def unmarked(content: bytes) -> bytes:
    """Without the mark of its encoding."""
    return content.removeprefix(_MARK)
