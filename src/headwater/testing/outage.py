"""A door in front of a TCP server that tests can shut: connections break, new ones are refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Door:
    """Forwards a loopback port to a server while it is open."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._lock = threading.Lock()
        self._pairs: list[socket.socket] = []
        self._listener = self._listen(0)
        self.port = int(self._listener.getsockname()[1])

    def shut(self) -> None:
        """Break every connection and refuse new ones."""
        with contextlib.suppress(OSError):  # shut before
            # Wakes the thread that waits in accept: the port is free only after it.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        with self._lock:
            for end in self._pairs:
                with contextlib.suppress(OSError):  # it may have been closed by its own side already
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._pairs.clear()

    def open(self) -> None:
        """Forward again, on the same port."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self._accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._accepting.start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                return  # shut
            with self._lock:
                self._pairs += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the door was shut, or one side hung up: the copy ends either way
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def door_to(port: int) -> Iterator[Door]:
    """A door that is shut for good at the end of the block."""
    door = Door(port)
    try:
        yield door
    finally:
        door.shut()
