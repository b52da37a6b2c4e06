"""Free ports on loopback for servers that will come back to them."""

from __future__ import annotations

import random
import socket

# Below the range that systems give to outgoing connections (32768 and up on Linux, 49152 on macOS): a client that keeps
# calling a stopped server's port from within that range can connect to itself, and then the server cannot have it back.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200


def free_port() -> int:
    """A port that nobody listens at now."""
    for _ in range(_TRIES):
        port = random.randint(_FIRST, _LAST)  # noqa: S311 - no secret; spreads processes that choose at the same time
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen there; connections that are still closing do not hinder it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
