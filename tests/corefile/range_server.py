"""An HTTP server of ranges on loopback that can be told to misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class RangeServer:
    """`files` by path. `faults` are used up one a request, in order; each answers, or returns False to be served as usual."""

    files: dict[str, bytes]
    port: int = 0
    faults: list[Callable[[Handler], bool]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)  # path, range
    n_connections: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rules: RangeServer

    def setup(self) -> None:
        super().setup()
        self.rules.n_connections += 1

    def do_GET(self) -> None:
        self.rules.requests.append((self.path, self.headers["Range"]))
        if self.rules.faults and self.rules.faults.pop(0)(self):
            return
        content = self.rules.files.get(self.path)
        if content is None:
            self.answer(404)
        else:
            start, end = self.wanted()
            if start >= len(content):
                self.answer(416)
            else:
                part = content[start : end + 1]
                self.answer(206, part, f"bytes {start}-{start + len(part) - 1}/{len(content)}")

    def wanted(self) -> tuple[int, int]:
        start, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
        return int(start), int(end)

    def answer(
        self, status: int, body: bytes = b"", content_range: str = "", *, says_nbytes: int | None = None, to: str = ""
    ) -> bool:
        """Send a response; one that says more bytes than it has closes the connection."""
        self.send_response(status)
        nbytes = len(body) if says_nbytes is None else says_nbytes
        self.send_header("Content-Length", str(nbytes))
        if content_range:
            self.send_header("Content-Range", content_range)
        if to:
            self.send_header("Location", to)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = nbytes != len(body)
        return True

    def log_message(self, *words: object) -> None:
        """Tests print nothing."""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[RangeServer]:
    rules = RangeServer(files)
    handler = type("BoundHandler", (Handler,), {"rules": rules})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        rules.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield rules
        finally:
            server.shutdown()
            thread.join()


def drop(handler: Handler) -> bool:
    """Close without a word."""
    handler.close_connection = True
    return True


def cut(n_bytes: int) -> Callable[[Handler], bool]:
    """Answer well, and break off after so many bytes."""

    def fault(handler: Handler) -> bool:
        content = handler.rules.files[handler.path]
        start, end = handler.wanted()
        body = content[start : min(end + 1, start + n_bytes)]
        return handler.answer(206, body, f"bytes {start}-{end}/{len(content)}", says_nbytes=end + 1 - start)

    return fault


def status(number: int, **more: str) -> Callable[[Handler], bool]:
    """Answer with this status."""
    return lambda handler: handler.answer(number, b"a page", **more)


def always(fault: Callable[[Handler], bool]) -> list[Callable[[Handler], bool]]:
    return [fault] * 100
