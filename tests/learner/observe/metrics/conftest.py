"""Serves metrics over HTTP for tests."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], bytes], str], str]]:
    """Returns a function that serves a text, computed for each request, and returns its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(text: Callable[[], bytes], kind: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Logs nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/metrics"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
