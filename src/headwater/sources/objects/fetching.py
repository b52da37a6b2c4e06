"""The contents of many objects, in their order, a few of them on the way while others are decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from headwater.sources.objects.container import Container
from headwater.sources.objects.contents import Content, load
from headwater.sources.objects.failures import ObjectFailed
from headwater.sources.objects.listed import Listed

_AT_ONCE = 16  # requests; a store answers many as fast as one
_AHEAD_BYTES = 64 << 20

Loaded = tuple[Listed, Content | ObjectFailed]


def contents(container: Container, objects: Sequence[Listed], compression: str) -> Iterator[Loaded]:
    """Every object with its content, or with the reason why it has none."""
    if container.address.startswith("file:"):
        # A disk answers sooner than a thread.
        return ((listed, _loaded(container, listed, compression)) for listed in objects)
    return _in_threads(container, objects, compression)


def _in_threads(container: Container, objects: Sequence[Listed], compression: str) -> Iterator[Loaded]:
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        ahead: deque[tuple[Listed, Future[Content | ObjectFailed]]] = deque()
        size = 0
        for listed in objects:
            while ahead and (len(ahead) >= 2 * _AT_ONCE or size + listed.version.size > _AHEAD_BYTES):
                first, future = ahead.popleft()
                size -= first.version.size
                yield first, future.result()
            ahead.append((listed, threads.submit(_loaded, container, listed, compression)))
            size += listed.version.size
        for first, future in ahead:
            yield first, future.result()


def _loaded(container: Container, listed: Listed, compression: str) -> Content | ObjectFailed:
    try:
        return load(container, listed.version, compression)
    except ObjectFailed as failed:
        return failed
