"""A server in front of a real worker: gives the answers it was told to give, then passes everything on."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Scripted = tuple[int, bytes]


@contextmanager
def proxy(worker: str, *answers: Scripted) -> Iterator[tuple[str, list[str]]]:
    """Its address, and the requests that it has seen."""
    waiting, seen = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.command} {self.path} {self.headers.get('Authorization', '')}".strip())
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = waiting.pop(0) if waiting else self._passed_on(body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - as http.server calls them

        def _passed_on(self, body: bytes) -> Scripted:
            request = urllib.request.Request(  # noqa: S310 - our own server
                f"{worker}{self.path}", body or None, {"Content-Type": "application/json"}, method=self.command
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        def log_message(self, *_: object) -> None:
            """Tests look at `seen`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
